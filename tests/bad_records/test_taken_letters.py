"""Dead letters that a program writes into real systems, exactly once, while it is killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from malflow.snapshot import dead_letters
from tests.bad_records.programs.replaying import KEYS, OPERATORS, PARTS, backend_of
from tests.bad_records.programs.taken import SIZE
from tests.connectors.kafka.kit import Broker
from tests.kit.backends import kept_states
from tests.kit.killing import POINTS, kill_child, run_child
from tests.kit.nights import NIGHTLY

pytestmark = pytest.mark.slow

PROGRAM = "tests.bad_records.programs.taken"


def check(folder: Path, arguments: list[str], point: str, read: Callable[[], list[dict[str, Any]]]) -> None:
    """Kill the job at a point and finish it: each number is in the state or in exactly one letter of its operator."""
    kill_child(PROGRAM, folder, *arguments, point=f"{point}:5")  # a snapshot passes the first points twice
    before = read()
    assert 0 < len(before) < PARTS * SIZE * 3 // 7, "it was killed amid the run"
    run_child(PROGRAM, folder, *arguments)
    rows = read()
    assert all(row in rows for row in before), "what a reader of committed letters has seen stays"
    assert sorted(row["number"] for row in rows) == [n for n in range(PARTS * SIZE) if n % 7 < len(OPERATORS)]
    assert all(row["operator"] == OPERATORS[row["number"] % 7] for row in rows)
    assert all(row["message"] == f"{row['number']} at <object object at 0x...>" for row in rows)
    assert len({(row["operator"], row["id"]) for row in rows}) == len(rows)
    backend = backend_of(folder)
    added = sorted(number for seen in kept_states(backend, "add").values() for number in seen)
    assert added == [n for n in range(PARTS * SIZE) if n % 7 >= len(OPERATORS)]
    assert len(kept_states(backend, "add")) == KEYS
    assert not [letter for letter in dead_letters(backend) if letter.operator != "order"]


@pytest.mark.fault("N7", "A7")
@pytest.mark.parametrize("point", POINTS if NIGHTLY else ["before-manifest"])  # outside, in no snapshot
@pytest.mark.nightly
def test_letters_in_a_topic_are_exact_through_kills(tmp_path: Path, kafka_servers: str, point: str) -> None:
    broker = Broker(kafka_servers)
    topic = broker.topic(2)

    def read() -> list[dict[str, Any]]:
        return [json.loads(value) for partition in range(2) for value in broker.values(topic, partition)]

    check(tmp_path, ["kafka", kafka_servers, topic], point, read)


@pytest.mark.fault("N7", "A7")
@pytest.mark.parametrize("point", POINTS if NIGHTLY else ["before-commit"])  # in a snapshot, not outside
def test_letters_in_a_table_are_exact_through_kills(tmp_path: Path, postgres_dsn: str, point: str) -> None:
    name = f"letters{uuid4().hex[:12]}"
    columns = ("id", "operator", "number", "message")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        make = f"create table {name} (id text, operator text, number int, message text)"
        connection.execute(make.encode())

        def read() -> list[dict[str, Any]]:
            found = connection.execute(f"select {', '.join(columns)} from {name}".encode())  # noqa: S608 - a name of ours
            return [dict(zip(columns, row, strict=True)) for row in found]

        check(tmp_path, ["postgres", postgres_dsn, name], point, read)
