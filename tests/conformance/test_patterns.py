"""Patterns mean the same on every runtime, in snapshots too."""

from __future__ import annotations

from typing import Any

from malflow import DataMessage
from malflow.patterns import step
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import END, ScriptedSource, Timed
from tests.patterns.running import Outputs, match_flow

RECORDS = [("xyz"[n * 5 % 3], n * 7 % 11 + n, "abca"[(n * n * 3 + n // 7) % 4]) for n in range(80)]

a, b, c = (step(name, lambda value, name=name: value == name) for name in "abc")  # type: ignore[misc]
PATTERN = (a.times(1, 2).then(b, without=c) | c.then_not(b, during=3)).within(9)


def source_of(records: Any) -> ScriptedSource:
    """Return a source of ``(key, timestamp, value)`` records."""
    return ScriptedSource([it if it is END else Timed((it[0], it[2]), it[1]) for it in records])


def shown(sink: VecSink[Any, Any, Any]) -> list[Any]:
    """Return key and events of each match, the keys one after the other."""
    return [(msg.key, msg.value.events) for key in "xyz" for msg in sink if msg.key == key]


def test_matches_and_timeouts(any_parallelism: Any) -> None:
    outputs = Outputs(VecSink(), VecSink(), VecSink())
    any_parallelism(match_flow(source_of(RECORDS), 11, PATTERN, outputs, after="start")).execute()
    found = [
        PATTERN.find([DataMessage(key, it[2], it[1]) for it in RECORDS if it[0] == key], after="start") for key in "xyz"
    ]
    assert shown(outputs.matches) == [(match.key, match.events) for it in found for match in it]
    assert shown(outputs.timeouts) == [(match.key, match.events) for it in found for match in it.timeouts]
    assert len(outputs.matches.values) > 10 < len(outputs.timeouts.values)


def test_matches_by_kind_and_by_arrival(any_parallelism: Any) -> None:
    one, other = step("a", "a"), step("b", "b", lambda value: value != "c")
    outputs = Outputs(VecSink(), VecSink(), VecSink())
    options = {"kind": str, "order": "arrival", "overflow": "oldest", "limit": 3}
    any_parallelism(match_flow(source_of(RECORDS), 100, one.next(other), outputs, **options)).execute()
    found = [one.next(other).find([it[2] for it in RECORDS if it[0] == key], kind=str) for key in "xyz"]
    assert [[event[:2] for event in it] for _, it in shown(outputs.matches)] == [
        [event[:2] for event in match.events] for it in found for match in it
    ]


def test_partial_matches_continue_from_snapshots(runtime: Any, store: FsspecBackend) -> None:
    source = source_of([("x", 1, "a"), ("y", 2, "a"), ("x", 8, "a"), END, ("x", 9, "b"), ("z", 20, "")])
    sinks = [Outputs(VecSink(), VecSink(), VecSink()) for _ in range(2)]
    for outputs in sinks:
        runtime(match_flow(source, 5, a.then(b).within(10), outputs), persistence=store).execute()
    assert [msg.value.start for msg in sinks[1].matches] == [1]
    assert [msg.key for msg in sinks[1].timeouts] == ["y"]
