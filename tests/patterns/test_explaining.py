"""Explanations: the progress of each first event, and how it ended."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import DataMessage
from malflow.patterns import Pattern, step

a, b, c = (step(name, lambda value, name=name: name in value) for name in "abc")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("pattern", "values", "after", "lines"),
    [
        (a.then(b), "ab", "end", ["start 0 a: reached a, b; match at 1"]),
        (a.then(b), "aab", "start", ["start 0 a: reached a, b; match at 2", "start 1 a: reached a, b; match at 2"]),
        (a.next(b).then(c), "acb", "end", ["start 0 a: reached a; ended 1 by c (next)"]),
        (a.next(b), "a-b", "end", ["start 0 a: reached a; ended 1 by an event of no step (next)"]),
        (a.then(b, without=c), "acb", "end", ["start 0 a: reached a; ended 1 by c (without)"]),
        (a.then_not(c, during=5), "a-c", "end", ["start 0 a: reached a; ended 2 by c (then_not)"]),
        (a.then_not(c, during=2), "a---", "end", ["start 0 a: reached a; match at 2"]),
        (a.then_not(c, during=5), "a", "end", ["start 0 a: reached a; still open, waiting for no c"]),
        (a.times(2).then(b | c), "aa", "end", ["start 0 a: reached a x2; still open, waiting for b or c"]),
        (a.then(b).within(2), "a--b", "end", ["start 0 a: reached a; timed out at 2, waiting for b"]),
        (a.then(b, within=1).then(c), "a-b", "end", ["start 0 a: reached a; timed out at 1, waiting for b"]),
    ],
)
def test_each_start_has_its_end(pattern: Pattern[Any], values: str, after: Any, lines: list[str]) -> None:
    found = pattern.explain(values, after=after).splitlines()[1:]
    assert [line for line in found if line in lines] == lines


def test_starts_that_a_match_uses_up_name_it() -> None:
    for pattern in (a.then(b).within(9), a.then(b)):
        assert "start 1 a: reached a; used up by the match at 2" in pattern.explain("aab")


def test_steps_that_no_record_fulfils_are_in_the_first_line() -> None:
    assert a.then(b).explain("aac-").splitlines()[0] == "4 records; a: 2 (50%), b: 0 (0%)"
    assert a.then(b).explain([]) == "0 records; a: 0 (0%), b: 0 (0%)"


def test_keys_are_named_if_there_are_several() -> None:
    records = [DataMessage(key, "a", 0) for key in ("x", "y")]
    assert "start 0 a of 'y': reached a; still open, waiting for b" in a.then(b).explain(records)


def test_the_limit_is_the_last_line() -> None:
    explained = a.then(b).within(100).explain("a" * 9, limit=3)
    assert explained.splitlines()[-1].startswith("stopped: it has 4 partial matches")
