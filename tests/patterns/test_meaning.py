"""`find` agrees with the reference, and each way of emitting matches keeps its guarantees."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow import DataMessage
from tests.patterns.examples import EXAMPLES, Example
from tests.patterns.specs import Both, Spec, Step, built
from tests.patterns.strategies import History, afters, distinct_histories, histories, meaning_of, often, specs

TWO_STEPS = Spec(Both((Step("a", lambda it: it[0] == "a"), Step("b", lambda it: it[0] == "b"))))

pytestmark = pytest.mark.slow

Found = list[list[tuple[str, Any, Any]]]
"""The matches: the step, the time and the value of each event."""


def found(spec: Spec, events: History, after: str) -> Found:
    """Return the matches of a pattern in a history."""
    return [events_of(match) for match in result(spec, events, after)]


def result(spec: Spec, events: History, after: str) -> Any:
    """Return what a pattern finds in a history."""
    return built(spec).find([DataMessage("key", value, time) for time, value in events], after=after)


def events_of(match: Any) -> list[tuple[str, Any, Any]]:
    """Return the step, the time and the value of each event of a match."""
    return [(event.step, event.timestamp, event.value) for event in match.events]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_examples_give_their_matches(example: Example) -> None:
    both = result(example.spec, example.events, example.after)
    assert "; ".join(map(text_of, both)) == example.matches
    assert example.timeouts is None or [text_of(it) for it in both.timeouts] == without_deadlines(example.timeouts)


def text_of(match: Any) -> str:
    """Return a match as the examples write it."""
    text = " ".join(f"{step}@{time}" for step, time, _ in events_of(match))
    return text if match.end == match.events[-1].timestamp else f"{text} told {match.end}"


def without_deadlines(text: str) -> list[str]:
    """Return the timeouts of an example without the times at which they are told."""
    return [it.partition(" told")[0] for it in text.split("; ") if it]


@often
@given(specs(), afters, histories())
def test_matches_are_those_of_the_reference(spec: Spec, after: str, events: History) -> None:
    meaning = meaning_of(spec, events)
    expected = [[(name, *events[at]) for at, name in choice] for choice, _ in meaning.matches(after)]
    assert found(spec, events, after) == expected


@often
@given(specs(), afters, histories())
def test_timeouts_are_those_of_the_reference(spec: Spec, after: str, events: History) -> None:
    meaning = meaning_of(spec, events)
    expected = [[(name, *events[at]) for at, name in choice] for choice, _ in meaning.timeouts(after)]
    assert [events_of(match) for match in result(spec, events, after).timeouts] == expected


@often
@given(specs(), afters, histories())
def test_a_match_is_from_its_first_event_to_its_completion(spec: Spec, after: str, events: History) -> None:
    meaning = meaning_of(spec, events)
    expected = [(events[choice[0][0]][0], at) for choice, at in meaning.matches(after)]
    assert [(match.start, match.end) for match in result(spec, events, after)] == expected


@often
@given(specs(), distinct_histories, afters, st.randoms())
def test_order_of_arrival_is_invisible_but_for_ties(spec: Spec, events: History, after: str, chance: Any) -> None:
    shuffled = list(events)
    chance.shuffle(shuffled)
    assert found(spec, shuffled, after) == found(spec, events, after)


@often
@example(TWO_STEPS, [(1, ("a", 0)), (1, ("a", 0)), (2, ("b", 0))])  # equal events make equal matches
@given(specs(), histories(10))
def test_matches_of_end_are_among_those_of_start_and_those_among_all(spec: Spec, events: History) -> None:
    end, start, every = (found(spec, events, after) for after in ("end", "start", "all"))
    rest = iter(start)
    assert all(it in rest for it in end)  # and in the same order
    assert all(it in every for it in start)


@often
@given(specs(), distinct_histories)
def test_matches_of_end_are_disjoint(spec: Spec, events: History) -> None:
    spans = [(match[0][1], match[-1][1]) for match in found(spec, events, "end")]
    assert all(one[1] < other[0] for at, one in enumerate(spans) for other in spans[at + 1 :])


@often
@given(specs(bounded=True), afters, histories(10))
def test_no_match_is_longer_than_the_bound(spec: Spec, after: str, events: History) -> None:
    assert all(match[-1][1] - match[0][1] <= spec.within for match in found(spec, events, after))
