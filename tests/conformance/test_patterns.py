"""Patterns behave the same on every runtime, in snapshots too."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from malflow import DataMessage
from malflow.patterns import absent, step
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import END, ScriptedSource, Timed
from tests.patterns.running import Outputs, match_flow
from tests.windows.running import windowed_flow

BOUND = 11
RECORDS = [("xyz"[n % 3], n * 7 % 11 + n, ["a", "b", "ab", "c", "a", ""][n * 5 % 6]) for n in range(120)]

a, b, c = (step(letter, lambda letters, letter=letter: letter in letters) for letter in "abc")

PATTERNS = {
    "sequence": a.times(2, without=c).then(b).within(9),
    "absence": a.at_least(1).then_not(a, during=4),
    "silence": absent(b, during=3).then(a.then_not(c)).within(6),
    "strict": a.next(b | c),
    "any order": a.then(b & c).within(12),
    "every way": (a.then_any(b, within=5) | b.then(c)).within(8),
}


def script_of(records: Any) -> list[Any]:
    """Return a script of records, whose values are ``(key, value)``."""
    return [Timed((key, value), at) for key, at, value in records]


def added(pattern: Any, after: Any) -> Any:
    """Return a function that adds a pattern to a keyed stream, with matches and timeouts in one stream."""

    def add(keyed: Any) -> Any:
        found = keyed.match("match", pattern, after=after)
        matches = found.matches.map("matches", lambda match: ("match", match.events))
        return matches.union(found.timeouts.map("timeouts", lambda match: ("timeout", match.events)))

    return add


def counted(messages: Any) -> Counter[Any]:
    """Return how often each message comes, keys aside: their order is not specified."""
    return Counter((it.key, it.timestamp, it.value) for it in messages)


def expected(pattern: Any, after: Any) -> Counter[Any]:
    """Return what the pattern finds in each key alone."""
    rows: list[Any] = []
    for wanted in "xyz":
        found = pattern.find([DataMessage(key, value, at) for key, at, value in RECORDS if key == wanted], after=after)
        rows += [(wanted, "match", match.events) for match in found]
        rows += [(wanted, "timeout", match.events) for match in found.timeouts]
    return Counter(rows)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("after", ["end", "all"])
def test_matches_and_timeouts(any_parallelism: Any, name: str, after: Any) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    source = StatefulSource(ScriptedSource(script_of(RECORDS)))
    any_parallelism(windowed_flow(source, BOUND, added(PATTERNS[name], after), sink)).execute()
    assert Counter((it.key, *it.value) for it in sink) == expected(PATTERNS[name], after)


def test_partial_matches_continue_from_snapshots(runtime: Any, store: FsspecBackend) -> None:
    before = [("x", 1, "a"), ("y", 2, "a"), ("x", 9, "b")]
    source = StatefulSource(ScriptedSource([*script_of(before), END, *script_of([("y", 8, "b"), ("x", 30, "")])]))
    sinks: list[VecSink[Any, Any, Any]] = [VecSink(), VecSink()]
    for sink in sinks:
        build = windowed_flow(source, 5, added(a.then(b).within(7), "end"), sink)
        runtime(build, store, at_end="finish").execute()
    events = {"x": (("a", "a", 1),), "y": (("a", "a", 2), ("b", "b", 8))}
    assert counted(sinks[0]) == {("x", 8, ("timeout", events["x"])): 1, ("y", 9, ("timeout", events["y"][:1])): 1}
    assert counted(sinks[1]) == {("x", 8, ("timeout", events["x"])): 1, ("y", 8, ("match", events["y"])): 1}


def test_progress_counts_what_became_of_partial_matches(any_parallelism: Any) -> None:
    pattern = a.then(b, without=c).within(5)
    values = [("x", 1, "a"), ("x", 2, "c"), ("x", 3, "a"), ("x", 4, "a"), ("x", 5, "b"), ("y", 6, "a"), ("z", 20, "a")]
    source = ScriptedSource(script_of([*values, ("z", 22, "")]))
    outputs = Outputs(VecSink(), VecSink(), VecSink())
    handle = any_parallelism(match_flow(source, 1, pattern, outputs)).start()
    handle.await_termination()
    expected = {"starts": 5, "matches": 1, "timeouts": 2, "broken": 1, "used_up": 1, "dropped": 0, "late": 0}
    assert handle.progress.patterns == {"match": {**expected, "partials": 0}}
