"""Hints: where each stands, what it takes, and why others have no meaning here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from malflow.sql.syntax.queries import Hint
from malflow.sql.text import Span, SqlError
from malflow.words import did_you_mean

__all__ = ["POLICIES", "hints_of", "one_text"]

POLICIES = ("fail", "skip", "dead_letter")
"""The policies for rows that fail: the run ends, the row is dropped, or it is kept as a dead letter."""

_PLACES = {
    "NAME": ("query", "NAME('hot')"),
    "ON_ERROR": ("query", "ON_ERROR('skip')"),
    "LATE": ("query", "LATE('lost')"),
    "OPTIONS": ("table", "OPTIONS('start' = 'latest')"),
}
"""The hints, with what each belongs to and an example."""

_EXAMPLES = {"query": "after SELECT, as in SELECT /*+ {} */", "table": "after a table, as in FROM bids /*+ {} */"}

_OF_JOINS = "there is one way to join, and no optimiser"
_INSTEAD = {
    "STATE_TTL": "each state ends with its windows, or with its bounds in time",
    **dict.fromkeys(("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "MULTI_JOIN"), _OF_JOINS),
    "LOOKUP": "there are no look-ups in SQL; use .lookup() of a stream in Python",
}
"""Hints of Flink that have no meaning here."""


def hints_of(hints: Sequence[Hint], place: str, fault: Callable[[str, Span], SqlError]) -> dict[str, Hint]:
    """Return the hints of a query or a table by their names.

    Raises:
        SqlError: if one is unknown, comes twice, or stands elsewhere.
    """
    found: dict[str, Hint] = {}
    wrong: list[tuple[str, Span]] = []
    for it in hints:
        name = it.name.text.upper()
        belongs, example = _PLACES.get(name, ("", ""))
        if name in found:
            wrong.append((f"the hint {name} comes twice", it.span))
        elif not belongs:
            near = f"; {_INSTEAD[name]}" if name in _INSTEAD else did_you_mean(name, _PLACES, write=str)
            wrong.append((f"there is no hint {it.name}{near}", it.span))
        elif belongs != place:
            wrong.append((f"the hint {name} is written {_EXAMPLES[belongs].format(example)}", it.span))
        found[name] = it
    if wrong:
        raise SqlError([one for it in wrong for one in fault(*it).faults])
    return found


def one_text(hint: Hint, fault: Callable[[str, Span], SqlError], known: Sequence[str] = ()) -> str:
    """Return the only argument of a hint.

    Raises:
        SqlError: if it has others, or the argument is not a known one.
    """
    keys, values = zip(*hint.arguments, strict=True) if hint.arguments else ((), ())
    example = _PLACES[hint.name.text.upper()][1]
    if keys != ("",) or not values[0]:
        raise fault(f"the hint {hint.name} has one text in it: {example}", hint.span)
    if known and values[0] not in known:
        raise fault(f"the hint {hint.name} takes {', '.join(map(repr, known))}; got {values[0]!r}", hint.span)
    return str(values[0])
