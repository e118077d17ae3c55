"""The explanation of each first event agrees with the reference."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage
from tests.patterns.reference import Fate
from tests.patterns.specs import Spec, built
from tests.patterns.strategies import History, histories, meaning_of, often, specs

pytestmark = pytest.mark.slow


def text_of(fate: Fate, start: Any) -> str:
    """Return how a start ended, as an explanation has it."""
    return f"{start} {fate.name}" + (f" {fate.time}" if fate.name in ("timeout", "match") else "")


ENDS = {
    r"; match at (-?\d+)": "match",
    r"; used up": "used up",
    r"; timed out at (-?\d+)": "timeout",
    r"; ended": "broken",
    r"; still open": "open",
    r"; ends as an earlier start": "merged",
}


def ending_of(line: str) -> str:
    """Return how a start ended by a line of an explanation."""
    start = line.split()[1]
    name, found = next((name, found) for it, name in ENDS.items() if (found := re.search(it, line)))
    return f"{start} {name}" + (f" {found[1]}" if found.groups() else "")


@often
@given(specs(), st.sampled_from(["end", "start"]), histories())
def test_each_start_is_explained(spec: Spec, after: str, events: History) -> None:
    events = [*events, (1000, ("", 0))]  # whatever waits is over by then
    lines = built(spec).explain([DataMessage("key", value, at) for at, value in events], after=after).splitlines()
    found = [ending_of(line) for line in lines if line.startswith("start ")]
    fates = meaning_of(spec, events).fates(after)
    expected = [text_of(fate, events[start][0]) for start, fate in fates.items()]
    assert len(found) == len(expected)
    assert all(it == other for it, other in zip(found, expected, strict=True) if not it.endswith("merged"))
