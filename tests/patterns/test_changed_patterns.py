"""Programs whose patterns have changed since the snapshot."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime, SnapshotError
from malflow.patterns import Event, Match, Pattern, absent, step
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, MsgpackCodec
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, Timed
from tests.kit.driving import run_of
from tests.patterns.running import Outputs, match_flow
from tests.windows.running import source_of

a, b, c = (step(name, lambda value, name=name: value == name) for name in "abc")  # type: ignore[misc]


class Job:
    """A job that stops after the records before `END`, and continues with those after it."""

    def __init__(self, folder: Path, items: list[Any], **backend: Any) -> None:
        self.source = StatefulSource(ScriptedSource([it if it is END else Timed(("x", it[1]), it[0]) for it in items]))
        self.backend = FsspecBackend(str(folder), **backend)

    def run(self, pattern: Pattern[Any], bound: int = 0, **options: Any) -> Outputs:
        """Run the job again, and return its outputs."""
        outputs = Outputs(VecSink(), VecSink(), VecSink())
        build = match_flow(self.source, bound, pattern, outputs, **options)
        SingleThreadRuntime(build, persistence=self.backend).execute()
        return outputs


def shown(sink: VecSink[Any, Any, Any]) -> list[str]:
    """Return each match as text."""
    return [" ".join(f"{event.step}@{event.timestamp}" for event in msg.value.events) for msg in sink]


ITEMS = [(1, "a"), (2, "a"), (9, "-"), END, (10, "b"), (20, "-"), (21, "-")]


def test_other_numbers_durations_and_predicates_go_on(tmp_path: Path) -> None:
    job = Job(tmp_path, [(1, "a"), (2, "a"), (3, "-"), END, (4, "a"), (5, "B"), (20, "-")])
    job.run(a.times(4).then(b).within(3))
    other = step("b", lambda value: value == "B")
    assert shown(job.run(a.times(3).then(other).within(9)).matches) == ["a@1 a@2 a@4 b@5"]


def test_a_shorter_duration_that_is_over_is_told_behind_the_epoch(tmp_path: Path) -> None:
    job = Job(tmp_path, ITEMS)
    job.run(a.then_not(c, during=100), after="start")
    found = job.run(a.then_not(c, during=3), after="start").matches
    assert [(msg.timestamp, msg.value.start) for msg in found] == [(10, 1), (10, 2)]


def test_partial_matches_at_places_that_are_gone_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(tmp_path, [(1, "a"), (2, "a"), (3, "a"), (9, "-"), END, (10, "b")])
    job.run(a.times(5).then(b), after="start")
    with caplog.at_level(logging.WARNING, "malflow.patterns"):
        assert shown(job.run(a.times(2).then(b), after="start").matches) == ["a@2 a@3 b@10"]
    assert "operator 'match' dropped 1 partial matches" in caplog.text


@pytest.mark.parametrize(
    "other", [a.next(b), a.then(c), a.then(b, without=c), a.times(2).then(b), absent(c, during=1).then(a.then(b))]
)
def test_another_shape_is_refused_with_both_shapes(tmp_path: Path, other: Pattern[Any]) -> None:
    job = Job(tmp_path, ITEMS)
    job.run(a.then(b))
    with pytest.raises(SnapshotError) as caught:
        job.run(other)
    assert f"operator 'match' is a match of {other.shape}, but in snapshot" in str(caught.value)
    assert "it is a match of a -> b; restore it, or increase version=: partial matches are then dropped" in str(
        caught.value
    )


def test_another_shape_of_a_new_version_keeps_records_that_wait_only(tmp_path: Path) -> None:
    job = Job(tmp_path, [(1, "a"), (9, "-"), (8, "a"), END, (10, "c"), (30, "-")])
    job.run(a.then(b), bound=5)
    assert shown(job.run(a.then(c), bound=5, version=2).matches) == ["a@8 c@10"]


def test_partial_matches_are_migrated(tmp_path: Path) -> None:
    def renamed(partials: list[Match[Any, Any, Any]], version: int) -> list[Match[Any, Any, Any]]:
        assert version == 1
        return [
            Match(None, it.start, it.end, tuple(Event("first", event.value, event.timestamp) for event in it.events))
            for it in partials
        ]

    job = Job(tmp_path, ITEMS)
    job.run(a.then(b), after="start")
    first = step("first", lambda value: value == "a")
    found = job.run(first.then(b).then_not(c, during=5), after="start", version=2, migrate=renamed).matches
    assert shown(found) == ["first@1 b@10", "first@2 b@10"]


def test_a_migration_that_returns_something_else_is_an_error(tmp_path: Path) -> None:
    job = Job(tmp_path, ITEMS)
    job.run(a.then(b))
    with pytest.raises(OperatorError, match=r"the migration of key 'x', .* must return a list of matches; got 3"):
        job.run(a.then(c), version=2, migrate=lambda partials, version: [3])


def test_states_are_plain_data_for_msgpack(tmp_path: Path) -> None:
    job = Job(tmp_path, ITEMS, codec=MsgpackCodec())
    job.run(a.then(b).within(50), after="start")
    assert shown(job.run(a.then(b).within(50), after="start").matches) == ["a@1 b@10", "a@2 b@10"]


def test_starts_with_a_match_do_not_time_out_after_a_restart(tmp_path: Path) -> None:
    job = Job(tmp_path, [(1, "a"), (2, "b"), (3, "a"), END, (30, "-"), (31, "-")])
    job.run(a.then_any(b).within(9), after="all")
    assert shown(job.run(a.then_any(b).within(9), after="all").timeouts) == ["a@3"]


def test_records_that_wait_keep_the_order_of_ties(tmp_path: Path) -> None:
    pattern = step("one", lambda value: value == "1").then(step("two", lambda value: value == "2"))
    job = Job(tmp_path, [(5, "2"), (5, "1"), (4, "1"), END, (5, "0"), (9, "-")])
    job.run(pattern, 3, ties=int)
    assert shown(job.run(pattern, 3, ties=int).matches) == ["one@4 two@5"]


def test_partial_matches_by_arrival_expire_in_the_order_of_time(tmp_path: Path) -> None:
    job = Job(tmp_path, [(5, "a"), (3, "a"), END, (8, "b"), (20, "-")])
    job.run(a.then(b).within(4), 3, after="start", order="arrival")
    found = job.run(a.then(b).within(4), 3, after="start")
    assert shown(found.matches) == ["a@5 b@8"]
    assert [(msg.timestamp, msg.value.start) for msg in found.timeouts] == [(7, 3)]


def test_an_absence_at_the_front_is_remembered(tmp_path: Path) -> None:
    job = Job(tmp_path, [(1, "c"), (2, "-"), END, (4, "a"), (7, "a")])
    job.run(absent(c, during=5).then(a))
    assert shown(job.run(absent(c, during=5).then(a)).matches) == ["a@7"]


@pytest.mark.slow
def test_a_chain_of_a_thousand_events_can_be_pickled(tmp_path: Path) -> None:
    items = [(at, "a") for at in range(999)]
    job = Job(tmp_path, [*items, END, (1000, "a"), (1001, "-")])
    pattern = a.times(1000).within(5000)
    job.run(pattern, limit=1000)
    (found,) = job.run(pattern, limit=1000).matches
    assert len(found.value["a"]) == 1000


def test_only_keys_that_have_changed_are_written() -> None:
    items = [(key, 1, "a") for key in range(40)]
    outputs = Outputs(VecSink(), VecSink(), VecSink())
    ticks: list[Any] = [*items, (0, 3, "-"), PAUSE, (7, 4, "b"), (8, 5, "-"), (9, 6, "-"), (9, 7, "-")]
    build = match_flow(source_of(ticks), 1, a.then(b), outputs)
    run = run_of(build)
    with run:
        keys = 0
        while keys < 40:  # how many records a tick has depends on how fast the machine is
            run.tick()
            keys = next((delta.keys for delta in run.deltas() if delta.name == "match"), keys)
        changed: set[Any] = set()
        for _ in range(6):
            run.tick()
            for delta in run.deltas():
                if delta.name == "match":
                    changed |= set(delta.delta.changed) | delta.delta.deleted
        run.end()
    assert changed == {7}


def test_three_partial_matches_are_a_few_bytes() -> None:
    outputs = Outputs(VecSink(), VecSink(), VecSink())
    value = {"kind": "failed", "size": 17}
    failed = step("failed", lambda it: it["kind"] == "failed")
    items = [("x", at, value) for at in (1000, 2000, 3000)]
    run = run_of(
        match_flow(source_of([*items, ("x", 4000, {"kind": ""})]), 0, failed.times(4).within(300_000), outputs)
    )
    with run:
        run.tick()
        states = [dict(state.items()) for (_, name), state in run.states().items() if name == "match"]
        run.end()
    assert len(pickle.dumps(states[0]["x"])) < 200
