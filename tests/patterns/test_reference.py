"""The reference agrees with the examples of the design, so that agreement with it is meaningful."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.patterns.examples import EXAMPLES, Example
from tests.patterns.reference import Meaning, Told
from tests.patterns.specs import Spec, built
from tests.patterns.strategies import History, histories, meaning_of, specs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_reference_gives_the_matches_of_an_example(example: Example) -> None:
    meaning = Meaning(example.spec, example.events)
    matches = [example.written(choice, at) for choice, at in meaning.matches(example.after)]
    timeouts = [example.written(choice, at) for choice, at in meaning.timeouts(example.after)]
    assert "; ".join(matches) == example.matches
    assert example.timeouts is None or "; ".join(timeouts) == example.timeouts


def starts_of(matches: list[Told]) -> list[int]:
    return [choice[0][0] for choice, _ in matches]


@given(specs(), histories())
def test_matches_of_end_are_among_those_of_start_and_those_among_all(spec: Spec, events: History) -> None:
    meaning = meaning_of(spec, events)
    end, start, every = (meaning.matches(after) for after in ("end", "start", "all"))
    assert [it for it in start if it in end] == end
    assert [it for it in every if it in start] == start
    assert sorted(set(starts_of(every))) == sorted(starts_of(start))


@given(specs(), specs())
def test_patterns_of_different_shapes_print_differently(one: Spec, other: Spec) -> None:
    one_pattern, other_pattern = built(one), built(other)
    assert one_pattern.shape == other_pattern.shape or str(one_pattern) != str(other_pattern)
