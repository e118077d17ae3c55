"""Classes and kinds find the same events as predicates."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage
from malflow.patterns import step
from tests.patterns.specs import Spec, Step, built
from tests.patterns.strategies import afters, histories, often, specs

pytestmark = pytest.mark.slow


class A(tuple[str, int]):
    """A value of step a."""


class B(tuple[str, int]):
    """A value of step b."""


class C(tuple[str, int]):
    """A value of step c."""


CLASSES: dict[str, Any] = {"a": A, "b": B, "c": C}


def by_class(one: Step) -> Any:
    """Return a step with the classes of the values that fulfil its predicate."""
    kinds = [kind for letter, kind in CLASSES.items() if one.where((letter, 0))]
    union = kinds[0]
    for kind in kinds[1:]:
        union |= kind
    return step(one.name, union, given=one.given)


def by_kind(one: Step) -> Any:
    """Return a step with the kind of the values that fulfil its predicate; a predicate if there are several kinds."""
    kinds = [letter for letter in CLASSES if one.where((letter, 0))]
    if len(kinds) > 1:
        return step(one.name, one.where, given=one.given)
    return step(one.name, kinds[0], given=one.given)


@often
@given(spec=specs(), after=afters, events=histories(10), given_kinds=st.booleans())
def test_kinds_find_what_predicates_find(spec: Spec, after: Any, events: Any, given_kinds: bool) -> None:
    typed = [
        DataMessage("key", CLASSES[letters[0]]((letters[0], number)), at) for at, (letters, number) in events if letters
    ]
    expected = built(spec).find(typed, after=after)
    pattern = built(spec, by_kind if given_kinds else by_class)
    has_kinds = given_kinds and any(it.kind is not None for it in pattern.all_steps)
    found = pattern.find(typed, after=after, kind=itemgetter(0) if has_kinds else None)
    assert (found, found.timeouts) == (expected, expected.timeouts)
