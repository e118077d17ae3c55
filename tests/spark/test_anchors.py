"""Workers stay on the executors of a cluster that hold their state."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.engine.reports import Report
from malflow.runtime.spark.anchors import Anchors, places_after
from malflow.runtime.spark.protocol import StageReport
from malflow.runtime.spark.worker_places import AGE, WorkerPlaces
from tests.kit.waiting import wait_until
from tests.spark.clusters import Driver, need_spark
from tests.spark.programs.faults import Options
from tests.spark.test_faults import assert_exact

LONG = 240
"""Records in each part of a run that lasts some seconds."""

clusters = st.lists(st.lists(st.sampled_from("abcdef"), unique=True), max_size=12)


@given(changes=clusters, parallelism=st.integers(1, 40))
def test_workers_of_living_executors_stay(changes: list[list[str]], parallelism: int) -> None:
    places: list[str] = []
    for alive in changes:
        after = places_after(places, alive, parallelism)
        if not alive:
            assert after == places, "there is no better place"
            continue
        assert set(after) <= set(alive)
        assert len(after) == parallelism
        if places:
            moved = sum(was != now for was, now in zip(places, after, strict=True) if was in alive)
            assert moved <= max(1, parallelism // 10)
            held = Counter(dict.fromkeys(alive, 0))
            held.update(after)
            heirs = {now for was, now in zip(places, after, strict=True) if was not in alive}
            assert all(held[heir] <= min(held.values()) + 1 for heir in heirs)
        places = after


@given(
    before=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40),
    alive=st.sets(st.sampled_from("abcdef"), min_size=1),
)
def test_places_become_even_and_then_stay(before: list[str], alive: set[str]) -> None:
    executors, places = sorted(alive), before
    for _ in before:
        places = places_after(places, executors, len(before))
    held = Counter(dict.fromkeys(executors, 0))
    held.update(places)
    assert max(held.values()) - min(held.values()) <= 1
    assert places_after(places, executors, len(before)) == places


def test_an_executor_without_a_known_host_gets_workers_later(monkeypatch: pytest.MonkeyPatch) -> None:
    anchors, made, hosts = Anchors.__new__(Anchors), list[list[str]](), {"1": "n", "2": "n"}
    anchors._parallelism, anchors._places, anchors._known = 4, (), ""
    monkeypatch.setattr(anchors, "_hosts", lambda: hosts)
    monkeypatch.setattr(anchors, "_anchor", made.append)
    anchors._place("1,2,3")
    assert made == [["executor_n_1", "executor_n_2"] * 2]
    assert anchors._known != "1,2,3"
    hosts["3"] = "m"
    anchors._place("1,2,3")
    assert sorted(made[-1]) == ["executor_m_3", "executor_n_1", "executor_n_2", "executor_n_2"]
    assert anchors._known == "1,2,3"


def report(worker: int, process: str) -> StageReport:
    return StageReport(0, 0, Report(worker), process=process, copies=1)


def test_a_worker_counts_as_moved_once_it_ran_twice_elsewhere() -> None:
    places = WorkerPlaces()
    for tick, process in enumerate(["n:1:10", "n:1:11", "n:2:20", "n:1:10", "n:2:20", "n:2:21"]):
        places.note(tick, [report(0, process)])
        assert [move.executor for move in places.moves] == (["n:2"] if tick == 5 else [])
    assert places.moved == 3, "another process of an executor is no move"
    for tick in range(6, 6 + AGE):
        places.note(tick, [report(0, "n:2:20")])
    assert places.moves == []
    assert places.copies == 1, "of processes that ran a task of late"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Start a cluster of two executors on which Spark waits for the preferred one."""
    need_spark()
    with Driver(tmp_path_factory.mktemp("cluster"), LOCALITY_WAIT="8s") as driver:
        yield driver


@pytest.mark.spark
@pytest.mark.fault("I2")
def test_tasks_stay_with_their_state_and_move_with_a_lost_executor(cluster: Driver, tmp_path: Path) -> None:
    wait_until(lambda: cluster.ask("registered")["executors"] == 2)
    end = cluster.run(folder=str(tmp_path))
    assert (end["error"], end["restarts"], end["moves"], end["copies"]) == (None, 0, 0, 1.0)
    assert end["read"] == 0, "the state was empty at the start"
    assert_exact(tmp_path)
    folder = tmp_path / "killed"
    folder.mkdir()
    cluster.ask("start", folder=str(folder), size=LONG, most=30)
    wait_until(lambda: cluster.ask("progress")["tick"] >= 5)
    os.kill(cluster.executors()[0], signal.SIGKILL)
    end = cluster.wait()
    assert (end["error"], end["restarts"], end["copies"]) == (None, 0, 1.0)
    stages, workers = 2, Options.parallelism
    assert 0 < end["moves"] <= 3 * stages * workers, "away from the lost executor, and then to the one in its place"
    assert end["read"] > 0, "by those that took over"
    assert_exact(folder, LONG)


@pytest.mark.spark
@pytest.mark.fault("I2")
def test_without_what_anchors_need_the_run_says_so_once(cluster: Driver, tmp_path: Path) -> None:
    end = cluster.run(folder=str(tmp_path), anchorless=True)
    assert (end["error"], end["restarts"]) == (None, 0)
    assert [text for text in end["warnings"] if "keep" in text] == [
        "Spark can't keep tasks where their state is: 'Anchors' has no such door; each executor may come to hold the "
        "state of all workers"
    ]
    assert_exact(tmp_path)


@pytest.mark.spark
def test_changes_that_are_lost_or_damaged_start_the_run_again(cluster: Driver, tmp_path: Path) -> None:
    """No other process has the state: the tasks of a worker stay on an executor of one core."""
    wait_until(lambda: cluster.ask("registered")["executors"] == 2)
    end = cluster.run(folder=str(tmp_path), deeds=[("sum", 50, "lose_scratch"), ("sum", 100, "flip_scratch")])
    assert (end["error"], end["restarts"]) == (None, 2)
    assert "is missing from the scratch folder" in end["warnings"][0]
    assert "is damaged: its content is not what this run wrote" in end["warnings"][1]
    assert_exact(tmp_path)
