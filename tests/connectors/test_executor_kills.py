"""From one system to another on a cluster whose executors are killed while the sink writes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.connectors.pairs import Pair
from tests.kit.nights import only_nightly
from tests.kit.waiting import wait_until
from tests.spark.clusters import Driver, need_spark

pytestmark = [
    pytest.mark.spark,
    only_nightly,
]

PAIRS = [
    ("kafka", "kafka"),
    ("kafka", "postgres"),
    ("kafka", "parquet"),
    ("changes", "postgres"),
    ("changes", "delta"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Start a cluster of two executors, each a process with processes of Python."""
    need_spark()
    with Driver(tmp_path_factory.mktemp("cluster"), program="tests.connectors.pairs_cluster") as driver:
        yield driver


@pytest.mark.fault("I2", "A7")
@pytest.mark.parametrize("pair", PAIRS, ids="_to_".join, indirect=True)
def test_executors_killed_while_a_sink_writes(cluster: Driver, pair: Pair) -> None:
    pair.add(300)
    cluster.ask("start", arguments=pair.arguments, seconds=0.02)
    for _ in range(3):
        tick = cluster.ask("progress")["tick"]
        wait_until(lambda tick=tick: cluster.ask("progress")["tick"] >= tick + 3 and len(cluster.executors()) == 2)
        os.kill(cluster.executors()[0], signal.SIGKILL)
        pair.check()
    end = cluster.wait()
    assert end["error"] is None
    assert end["tick"] > 15, "they were killed amid the run"
    pair.check(whole=True)
