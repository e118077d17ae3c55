"""Workers stay on the executors of a cluster that hold their state."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.engine.reports import Report
from malflow.runtime.spark.anchors import Anchors, places_after
from malflow.runtime.spark.protocol import StageReport
from malflow.runtime.spark.tasks.worker_places import AGE, WorkerPlaces

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


class Java:
    """Stands for Spark's context in Java, whose executors are decommissioned."""

    def __init__(self, *registered: str) -> None:
        self.registered, self.decommissioned = [*registered], set[str]()

    def getExecutorIds(self) -> Java:  # noqa: N802 - as Spark names it
        return self

    def mkString(self, _: str) -> str:  # noqa: N802 - as above
        return ",".join(self.registered)

    def schedulerBackend(self) -> Java:  # noqa: N802 - as above
        return self

    def executorsPendingDecommission(self) -> Java:  # noqa: N802 - as above
        return self

    def isEmpty(self) -> bool:  # noqa: N802 - as above
        return not self.decommissioned

    def isExecutorActive(self, executor: str) -> bool:  # noqa: N802 - as above
        return executor not in self.decommissioned


def test_a_decommissioned_executor_loses_its_workers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    anchors, made, java = Anchors.__new__(Anchors), list[list[str]](), Java("1", "2", "3")
    anchors._parallelism, anchors._places, anchors._known, anchors._anchored = 6, (), "", True
    anchors._scala = java
    monkeypatch.setattr(anchors, "_hosts", lambda: dict.fromkeys("123", "n"))
    monkeypatch.setattr(anchors, "_anchor", made.append)
    for leaving, remaining in (("2", {"executor_n_1", "executor_n_3"}), ("3", {"executor_n_1"})):
        anchors.refresh()
        java.decommissioned.add(leaving)
        anchors.refresh()
        assert {*made[-1]} == remaining
    java.registered.remove("1")
    anchors.refresh()
    assert len(made) == 3, "there is no better place"


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
