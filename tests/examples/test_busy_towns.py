"""The example in SQL and in Python: the same results, in lists and on a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples import busy_towns
from malflow import SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import run_sql
from tests.connectors.kafka.kit import Broker
from tests.servers.kafka import Kafka

TEXT = Path(busy_towns.__file__).with_suffix(".sql")
ORDERS = [
    {"town": "Ulm", "cents": 3050, "ts": "2026-03-01 10:00:02"},
    {"town": "Bonn", "cents": 700, "ts": "2026-03-01 10:00:31"},
    {"town": "Bonn", "cents": 2900, "ts": "2026-03-01 10:00:30"},
    {"town": "Jena", "cents": 50, "ts": "2026-03-01 10:01:04"},
    {"town": "Ulm", "cents": 90, "ts": "2026-03-01 10:00:59"},
    {"town": "Bonn", "cents": 50, "ts": "2026-03-01 10:01:58"},
    {"town": "Bonn", "cents": 900, "ts": "2026-03-01 10:03:10"},
]
BUSIEST = [
    {"since": "2026-03-01 10:00:00.000", "town": "Bonn", "orders": 2, "cents": 3600},
    {"since": "2026-03-01 10:01:00.000", "town": "Bonn", "orders": 1, "cents": 50},
]
LAST = {"since": "2026-03-01 10:03:00.000", "town": "Bonn", "orders": 1, "cents": 900}


def test_in_sql() -> None:
    found = run_sql(TEXT, {"orders": ORDERS})["busiest"]
    assert [{**it, "since": it["since"].isoformat(" ", "milliseconds")} for it in found] == [*BUSIEST, LAST]


def test_in_python() -> None:
    found = VecSink[Any, Any, Any]()
    SingleThreadRuntime(busy_towns.dataflow(SingleIteratorSource(ORDERS), found)).execute()
    assert found.values == [*BUSIEST, LAST]


@pytest.mark.nightly
@pytest.mark.parametrize("language", ["sql", "python"])
def test_busy_towns(
    language: str,
    own_kafka: Callable[[], Kafka],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(own_kafka().address)
    for topic in ("orders", "busiest"):
        broker.topic(1, topic)
    broker.write("orders", [json.dumps(it) for it in ORDERS], 0)
    monkeypatch.setenv("KAFKA", broker.servers)
    if language == "sql":
        command = [sys.executable, "-m", "malflow", "run", str(TEXT), "--persistence", str(tmp_path)]
        subprocess.run([*command, "--set", 'operators."busy_towns.orders".options.stop=latest'], check=True)
    else:
        busy_towns.main(broker.servers, str(tmp_path), "latest")
    assert [json.loads(it) for it in broker.values("busiest", 0)] == BUSIEST
