"""Examples of patterns with their matches, written by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.patterns.reference import Choice
from tests.patterns.specs import Both, Either, Silence, Spec, Step, Then, Times
from tests.patterns.strategies import letter

__all__ = ["EXAMPLES", "Example"]

A, B, C, D, F, S = map(letter, "abcdfs")


@dataclass(frozen=True)
class Example:
    """A pattern, a history and what is found in it.

    Attributes:
        title: what it shows.
        spec: the pattern.
        history: the events' letters, and a number for some; ``f@200`` has a time, the others come at 0, 1, 2, ...
        after: which matches are told.
        matches: the matches: ``step@time`` for each event, and ``told`` with the time if it is later.
        timeouts: the timeouts; None if the example says nothing of them.
    """

    title: str
    spec: Spec
    history: str
    after: str
    matches: str
    timeouts: str | None = None

    def __str__(self) -> str:
        return self.title

    @property
    def events(self) -> list[tuple[int, Any]]:
        """The times and values."""
        words = [re.fullmatch(r"([a-z]+)(\d*)(?:@(\d+))?", it) for it in self.history.split()]
        return [(int(it[3] or at), (it[1], int(it[2] or 0))) for at, it in enumerate(words) if it]

    def written(self, choice: Choice, told: Any) -> str:
        """Return a match as a text."""
        events = self.events
        text = " ".join(f"{name}@{events[at][0]}" for at, name in choice)
        return text if told == events[choice[-1][0]][0] else f"{text} told {told}"


def _loop(step: Step, low: int, high: int | None = None) -> Times:
    return Times(step, low, high)


def _exceeds(step: str) -> Callable[[Any, Any], bool]:
    """Return a condition: the number is larger than the last one of a step."""
    return lambda value, so_far: bool(value[1] > so_far.last(step)[1])


COUNTING = Step("n", lambda value: "n" in value[0], lambda value, so_far: bool(value[1] > len(so_far["n"])))
LARGER = Step("b", lambda value: "b" in value[0], _exceeds("a"))
GUARD = Step("g", lambda value: "g" in value[0], _exceeds("a"))

RISING = Step(
    "r", lambda value: "r" in value[0], lambda value, so_far: not so_far["r"] or bool(value[1] > so_far.last("r")[1])
)

_OPTIONAL = Spec(Then(Then(A, Times(B, 0, 1)), C))
_BURST = Silence(_loop(F, 3), F, 5)
_LOGINS = Spec(Then(Times(F, 3, 3), S), 300)

EXAMPLES = [
    Example("the first that fits", Spec(Then(A, B)), "a b b", "start", "a@0 b@1"),
    Example("an optional step that is there", _OPTIONAL, "a b c", "start", "a@0 b@1 c@2"),
    Example("an optional step that is not there", _OPTIONAL, "a c", "start", "a@0 c@1"),
    Example("loop and end", Spec(Then(_loop(F, 1), S)), "f f s", "start", "f@0 f@1 s@2; f@1 s@2"),
    Example(
        "rounds without events",
        Spec(Then(Times(Times(A, 0, 1), 2, 2), B)),
        "a b",
        "start",
        "a@0 b@1; b@1",
    ),
    Example("loop at the end", Spec(_loop(F, 3)), "f f f f f f", "end", "f@0 f@1 f@2; f@3 f@4 f@5"),
    Example("absence and end in one", Spec(Then(A, B, without=C)), "a bc", "start", "a@0 b@1"),
    Example("absence before the end", Spec(Then(A, B, without=C)), "a c b", "start", ""),
    Example("any order", Spec(Then(A, Both((B, C)))), "a c b", "start", "a@0 c@1 b@2"),
    Example("absence broken at its end", Spec(Silence(A, C, 5)), "a@0 c@5", "start", "", ""),
    Example("absence broken too late", Spec(Silence(A, C, 5)), "a@0 c@6", "start", "a@0 told 5", ""),
    Example("absence in the middle", Spec(Then(Silence(A, B, 5), C)), "a@0 c@3 c@6", "start", "a@0 c@6"),
    Example("absence in the middle, end too early", Spec(Then(Silence(A, B, 5), C)), "a@0 c@5", "start", ""),
    Example("absence in the middle, broken at its end", Spec(Then(Silence(A, B, 5), C)), "a@0 b@5 c@6", "start", ""),
    Example(
        "the shortest of several absences",
        Spec(Either(Silence(A, C, 5), Silence(A, D, 3))),
        "a@0",
        "end",
        "a@0 told 3",
    ),
    Example(
        "a way on behind a match of absence",
        Spec(Either(Silence(A, C, 2), Then(A, B))),
        "a@0 b@5",
        "all",
        "a@0 told 2; a@0 b@5",
    ),
    Example(
        "a longer way through a loop before silence",
        Spec(Silence(Times(F, 1, None), C, 5)),
        "f@0 f@3",
        "end",
        "f@0 f@3 told 8",
    ),
    Example(
        "the longest of several bounds",
        Spec(Either(Then(A, B, within=3), Then(A, D, within=6))),
        "a@0 d@5 a@20",
        "end",
        "a@0 d@5",
        "a@20 told 26",
    ),
    Example(
        "one way on in time, another without a bound",
        Spec(Then(Then(A, B, "then_any", within=3), C)),
        "a@0 b@1",
        "end",
        "",
        "",
    ),
    Example("silence after a burst", Spec(_BURST), "f@0 f@1 f@2 f@3 f@20", "end", "f@0 f@1 f@2 f@3 told 8"),
    Example(
        "silence up to the bound",
        Spec(Silence(_loop(F, 3), F), 10),
        "f@0 f@1 f@2 f@3 f@20",
        "end",
        "f@0 f@1 f@2 f@3 told 10",
        "f@20 told 30",
    ),
    Example(
        "every start counts for the bound",
        _LOGINS,
        "f@0 f@200 f@250 f@301 s@302",
        "end",
        "f@200 f@250 f@301 s@302",
        "f@0 f@200 f@250 told 300",
    ),
    Example("bound as a whole, inclusive", Spec(Then(A, B), 10), "a@0 b@10", "end", "a@0 b@10", ""),
    Example("bound as a whole, exceeded", Spec(Then(A, B), 10), "a@0 b@11", "end", "", "a@0 told 10"),
    Example("bound of a connector", Spec(Then(Then(A, B), C, within=5)), "a@0 b@6 c@11", "end", "a@0 b@6 c@11", ""),
    Example(
        "bound of a connector for each start",
        Spec(Then(Then(A, B), C, within=5)),
        "a@0 a@1 b@2 b@9",
        "end",
        "",
        "a@0 b@2 told 7; a@1 b@2 told 7",
    ),
    Example(
        "bound from the event before an optional one",
        Spec(Then(Then(A, Times(B, 0, 1)), C, within=5)),
        "a@0 b@4 c@9 a@20 c@26",
        "end",
        "a@0 b@4 c@9",
        None,
    ),
    Example("next, with nothing between", Spec(Then(A, B, "next")), "a c b a b", "start", "a@3 b@4"),
    Example("every later one", Spec(Then(A, B, "then_any")), "a b b", "all", "a@0 b@1; a@0 b@2"),
    Example(
        "every later one, beside a loop that takes its events",
        Spec(Then(Then(A, Times(B, 1, None)), C, "then_any")),
        "a b b c",
        "all",
        "a@0 b@1 b@2 c@3; a@0 b@1 c@3",
    ),
    Example(
        "a condition on the match so far, from its first event on",
        Spec(Times(COUNTING, 2, 2)),
        "n0 n1 n1 n2",
        "start",
        "n@1 n@3; n@2 n@3",
    ),
    Example("each larger than the last", Spec(Times(RISING, 3, 3)), "r1 r3 r2 r4", "start", "r@0 r@1 r@3"),
    Example("a condition that a later start fulfils", Spec(Then(A, LARGER)), "a5 a1 b3", "end", "a@1 b@2"),
    Example(
        "a condition on what must not come",
        Spec(Then(A, B, without=GUARD)),
        "a5 g3 b a1 g3 b",
        "start",
        "a@0 b@2",
    ),
    Example("either", Spec(Then(A, Either(B, C))), "a c b", "start", "a@0 c@1"),
    Example("absence in front, inclusive", Spec(A, None, (A, 5)), "a@0 a@5 a@11", "all", "a@0; a@11"),
    Example("absence in front, broken again", Spec(A, None, (A, 5)), "a@0 a@4 a@8", "all", "a@0"),
    Example("absence in front of a tie", Spec(A, None, (A, 5)), "a@0 a@0", "all", "a@0"),
    Example("disjoint matches", Spec(Then(A, B)), "a a b a b", "end", "a@0 b@2; a@3 b@4"),
    Example("each start", Spec(Then(A, B)), "a a b a b", "start", "a@0 b@2; a@1 b@2; a@3 b@4"),
    Example(
        "absence at the end uses up its events, not its time",
        Spec(Silence(A, C, 5)),
        "a@0 a@3",
        "end",
        "a@0 told 5; a@3 told 8",
    ),
    Example("the match that ends first", Spec(Either(Then(A, D), Then(B, C))), "a b c d", "end", "b@1 c@2"),
    Example(
        "an event that ends a wait, when the time of the rest is over",
        Spec(Either(Silence(A, C, 10), Then(A, B, within=3))),
        "a@0 c@7",
        "end",
        "",
        "",
    ),
    Example(
        "an event that ends one branch, when the time of the other is over",
        Spec(Either(Then(A, B, within=3), Then(A, D, without=C))),
        "a@0 c@7",
        "end",
        "",
        "",
    ),
    Example(
        "a start that has matched does not time out",
        Spec(Then(A, Times(B, 1, None)), 5),
        "a@0 b@1",
        "all",
        "a@0 b@1",
        "",
    ),
    Example(
        "a start that is used up at its deadline does not time out",
        Spec(Either(Silence(A, C, 4), Then(Then(A, B), D)), 4),
        "a@0 a@0",
        "end",
        "a@0 told 4; a@0 told 4",
        "",
    ),
    Example(
        "branches that begin alike are one",
        Spec(Either(Then(Then(A, B), C), Then(Then(A, B, "then_any"), C, "then_any"))),
        "a b c",
        "all",
        "a@0 b@1 c@2",
    ),
    Example(
        "an event that one branch takes is passed over by no other",
        Spec(Either(Then(Then(A, B, without=D), C), Then(Then(A, B, "then_any"), S))),
        "a b c s",
        "all",
        "a@0 b@1 c@2",
    ),
    Example(
        "a start with several ways times out once",
        Spec(Then(Then(A, B, "then_any"), C), 3),
        "a b b",
        "start",
        "",
        "a@0 b@1 told 3",
    ),
]
