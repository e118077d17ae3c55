"""Random patterns over steps that overlap, and random histories.

A value is ``(letters, number)``: it fulfils each step whose letter it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import assume, settings
from hypothesis import strategies as st

from tests.patterns.reference import Meaning, TooManyWords, words
from tests.patterns.specs import Both, Either, Silence, Spec, Step, Then, Times, Tree, all_steps_in, steps_in

__all__ = [
    "A",
    "B",
    "C",
    "History",
    "afters",
    "distinct_histories",
    "histories",
    "letter",
    "meaning_of",
    "often",
    "seldom",
    "specs",
    "values",
]

History = list[tuple[Any, Any]]
"""Times and values, in order."""

often = settings(max_examples=settings().max_examples * 3 // 2)
"""Half as many examples again as other properties have."""

seldom = settings(max_examples=max(settings().max_examples // 4, 5))
"""A quarter of the examples that other properties have."""


def meaning_of(spec: Spec, events: History) -> Meaning:
    """Return a pattern's meaning for a history; reject the example if its language is too large."""
    try:
        return Meaning(spec, events)
    except TooManyWords:
        assume(False)
        raise


def letter(name: str) -> Step:
    """Return a step for values with a letter."""
    return Step(name, lambda value: name in value[0])


A, B, C = map(letter, "abc")


def _is_larger(value: Any, so_far: Any) -> bool:
    return bool(value[1] > sum(number for _, number in so_far["a"]) // 2)


def _rises(value: Any, so_far: Any) -> bool:
    last = so_far.last("r")
    return last is None or bool(value[1] > last[1])


def _alternates(value: Any, so_far: Any) -> bool:
    return bool((value[1] + len(so_far["d"])) % 2 == 0)


LARGER = Step("l", lambda value: "a" in value[0], _is_larger)
RISING = Step("r", lambda value: "a" in value[0] or "b" in value[0], _rises)
ALTERNATING = Step("d", lambda value: "c" in value[0], _alternates)

plain_steps = st.sampled_from([A, B, C])
steps = st.sampled_from([A, A, B, B, C, C, LARGER, RISING, ALTERNATING])
modes = st.sampled_from(["then", "then", "then", "then", "next", "then_any"])
bounds = st.none() | st.none() | st.integers(0, 6)
forbidden = st.none() | st.none() | steps


@st.composite
def repeated(draw: Callable[..., Any], items: st.SearchStrategy[Tree], *, least: int = 0) -> Tree:
    """Draw an item that comes several times."""
    low = draw(st.integers(least, 2))
    high = draw(st.none() | st.integers(max(low, 1), 3))
    by = draw(modes)
    without = None if by == "next" else draw(forbidden)
    return Times(draw(items), low, high, by, draw(bounds), without)


@st.composite
def chained(draw: Callable[..., Any], lefts: st.SearchStrategy[Tree], rights: st.SearchStrategy[Tree]) -> Tree:
    """Draw one item and then another."""
    by = draw(modes)
    return Then(draw(lefts), draw(rights), by, draw(bounds), None if by == "next" else draw(forbidden))


def silent(items: st.SearchStrategy[Tree], during: st.SearchStrategy[Any]) -> st.SearchStrategy[Tree]:
    """Return a strategy of items and an absence behind them."""
    return st.builds(Silence, items.filter(lambda tree: not can_end_silent(tree)), steps, during)


loops_until_silence = silent(repeated(steps, least=1), st.integers(0, 4))
"""Loops that end with silence: a longer way through the loop and the absence contend for each event."""


def trees(depth: int) -> st.SearchStrategy[Tree]:
    """Return a strategy of trees."""
    if depth == 0:
        return steps
    below = st.deferred(lambda: trees(depth - 1))
    return st.one_of(
        steps,
        chained(below, below),
        chained(below, below),
        chained(loops_until_silence, below),
        st.builds(Either, below, below),
        repeated(below),
        st.lists(steps, min_size=2, max_size=3, unique=True).map(lambda it: Both(tuple(it))),
        silent(below, st.integers(0, 4)),
        loops_until_silence,
    )


told_by_time = st.one_of(
    loops_until_silence,
    st.builds(Either, silent(trees(1), st.integers(0, 4)), trees(1)),
    silent(chained(steps, repeated(steps, least=1)), st.integers(0, 4)),
)
"""Patterns that an absence completes, while other ways on are open."""


def can_end_silent(tree: Tree) -> bool:
    """Whether an absence can stand at the end; another one behind it is refused."""
    match tree:
        case Silence():
            return True
        case Then(left=left, right=right):
            return can_end_silent(right) or (can_be_empty(right) and can_end_silent(left))
        case Either(left=left, right=right):
            return can_end_silent(left) or can_end_silent(right)
        case Times(item=item):
            return can_end_silent(item)
        case _:
            return False


def can_be_empty(tree: Tree) -> bool:
    """Whether no event at all is a word."""
    return ((), None) in words(tree, 0)


@st.composite
def specs(draw: Callable[..., Any], *, bounded: bool = False) -> Spec:
    """Draw a whole pattern; one that is bounded has a time as a whole."""
    tree = draw(st.one_of(trees(1), trees(2), trees(3), told_by_time))
    if can_be_empty(tree):
        tree = Then(tree, draw(steps))
    within = draw(st.integers(0, 9) if bounded else st.none() | st.integers(1, 12))
    if within is not None and not can_end_silent(tree) and draw(st.integers(0, 3)) == 0:
        tree = Silence(tree, draw(steps))
    if LARGER in all_steps_in(tree) and A not in steps_in(tree):
        tree = Then(A, tree)  # the condition looks at its events
    absence = draw(st.none() | st.none() | st.none() | st.tuples(plain_steps, st.integers(0, 3)))
    return Spec(tree, within, absence)


values = st.tuples(st.sampled_from(["a", "b", "c", "ab", "bc", "ac", "abc", ""]), st.integers(0, 5))
afters = st.sampled_from(["end", "start", "all"])


@st.composite
def histories(draw: Callable[..., Any], size: int = 7, least_gap: int = 0) -> History:
    """Draw events whose times ascend."""
    gaps = st.sampled_from([gap for gap in (1, 1, 0, 2, 5) if gap >= least_gap])
    time, events = 0, []
    for value in draw(st.lists(values, min_size=draw(st.integers(0, size)), max_size=size)):
        time += draw(gaps)
        events.append((time, value))
    return events


distinct_histories = histories(least_gap=1)
"""Histories of events with different times."""
