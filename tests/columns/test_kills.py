"""Parquet to windows to Parquet and Delta as columns, each result once: workers and tasks die or are repeated."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow import StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from tests.columns import bars_program as program
from tests.connectors.test_column_crashes import OWN
from tests.kit.killing import POINTS, kill_child
from tests.kit.nights import at_night, only_nightly
from tests.kit.waiting import wait_until
from tests.multiprocess.groups import started
from tests.spark.clusters import Driver, need_spark
from tests.spark.simulation import Cluster, Plan, settings_at, simulated

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.slow

PROGRAM = "tests.columns.bars_program"
SINKS = ["parquet", "delta"]
CASES = [(sink, point) for sink in SINKS for point in [*POINTS, *OWN[sink]]]


def command(folder: Path, sink: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", PROGRAM, str(folder), sink, "processes"]


@pytest.mark.fault("A7")
@pytest.mark.parametrize(("sink", "point"), at_night(CASES, but=[("delta", "manifest-written")]))
def test_kill_between_windows_and_a_sink_of_columns(tmp_path: Path, sink: str, point: str) -> None:
    kill_child(PROGRAM, tmp_path, sink, "thread", point=f"{point}:2")
    program.run(tmp_path, sink)
    program.assert_bars(tmp_path, sink)


@pytest.mark.fault("A7", "E21")
@pytest.mark.parametrize(("sink", "point"), at_night(CASES, but=[("parquet", "before-commit")]))
def test_worker_process_killed_while_columns_flow(tmp_path: Path, sink: str, point: str) -> None:
    with started(command(tmp_path, sink), tmp_path, MALFLOW_FAILPOINT=f"{point}:2:stop") as run:
        run.wait_for_stop()
        os.kill(run.workers()[1], signal.SIGKILL)
        run.process.send_signal(signal.SIGCONT)
        run.end()
        assert run.said == ["restarted 1", "ended 1"]
    program.assert_bars(tmp_path, sink)


@pytest.mark.fault("A6", "A7")
@only_nightly
@pytest.mark.parametrize(("sink", "seed"), [*product(SINKS, range(4))])
def test_processes_killed_at_any_moment_while_columns_flow(tmp_path: Path, sink: str, seed: int) -> None:
    moments = random.Random(seed)  # noqa: S311 - no secret
    program.write_input(tmp_path)
    for _ in range(8):
        with started(command(tmp_path, sink), tmp_path) as run:
            time.sleep(moments.uniform(0.5, 6))
            victims = run.workers() if moments.random() < 0.7 else [run.process.pid]
            for victim in victims[:1]:
                os.kill(victim, signal.SIGKILL)
            time.sleep(moments.uniform(0, 3))
    program.run(tmp_path, sink)
    program.assert_bars(tmp_path, sink)


plans = st.lists(
    st.builds(
        Plan,
        places=st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple),
        again=st.frozensets(st.integers(0, 7), max_size=4),
        killed=st.none() | st.integers(0, 3),
        asks=st.booleans(),
        crash=st.integers(0, 7).map(lambda it: it == 0),
        doubled=st.booleans(),
        rescale=st.none() | st.integers(1, 4),
    ),
    max_size=12,
)


@pytest.mark.fault("I2", "I3", "M7")
@settings(max_examples=max(4, settings().max_examples // 10))  # each is a run with a hundred stages
@given(plans=plans, sink=st.sampled_from(SINKS))
def test_repeated_tasks_of_columns_with_letters(plans: list[Plan], sink: str) -> None:
    pytest.importorskip("pyspark")
    with tempfile.TemporaryDirectory() as there, simulated():
        folder = Path(there)
        started_at = settings_at(f"{folder}/scratch", program.backend_of(folder))
        started_at = replace(started_at, options=replace(started_at.options, at_end="finish"))
        graph = Graph()
        program.build(folder, sink, StreamProvider(graph))
        Cluster(plans, tries=3).run(compile_graph(graph), started_at, 2)
        program.assert_bars(folder, sink)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Start a cluster of two executors, each a process with processes of Python."""
    need_spark()
    with Driver(tmp_path_factory.mktemp("cluster"), program="tests.columns.bars_cluster") as driver:
        yield driver


@pytest.mark.fault("I2", "I3", "A7")
@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("sink", SINKS)
def test_tasks_and_executors_killed_while_columns_flow(cluster: Driver, tmp_path: Path, sink: str) -> None:
    cluster.ask("start", folder=str(tmp_path), sink=sink)
    tick = cluster.ask("progress")["tick"]
    wait_until(lambda: cluster.ask("progress")["tick"] >= tick + 3 and len(cluster.executors()) == 2)
    os.kill(cluster.executors()[0], signal.SIGKILL)
    end = cluster.wait()
    assert end["error"] is None
    assert len([*tmp_path.glob("death at *")]) == 2
    program.assert_bars(tmp_path, sink)
