"""The records and the patterns of the benchmark of patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from random import Random
from typing import Any

from malflow.patterns import Pattern, SoFar, step
from malflow.records.batch import BATCH_SIZE, Batch

__all__ = [
    "QUIET",
    "SPAN",
    "Failed",
    "LoggedIn",
    "Request",
    "absence",
    "batches",
    "by_class",
    "five_rising",
    "logins",
    "orders",
    "prices",
    "three_failed",
]

_KEYS = 1_000
SPAN = 300_000
"""Milliseconds from the first failed login to the success."""
QUIET = 10_000
"""Milliseconds after B in which C must not come."""

Record = dict[str, Any]
Columns = tuple[Sequence[Any], Sequence[Any], Sequence[int]]


@dataclass(slots=True)
class Request:
    """A record of the case with classes."""

    user: int
    at: int


class Failed(Request):
    """A failed login."""

    __slots__ = ()


class LoggedIn(Request):
    """A login."""

    __slots__ = ()


def logins(count: int) -> list[Record]:
    """Make requests of users, of which 1 % are logins, and 60 % of these fail."""
    return _records(Random(1), {"view": 990, "failed": 6, "login": 4}, count)


def orders(count: int) -> list[Record]:
    """Make records of which 10 % are of kind A, 10 % B, and 5 % C."""
    return _records(Random(2), {"view": 75, "A": 10, "B": 10, "C": 5}, count)


def prices(count: int) -> list[Record]:
    """Make prices."""
    return _records(Random(3), {"tick": 1}, count)


def _records(random: Random, kinds: Mapping[str, int], count: int) -> list[Record]:
    """Make records, one a millisecond, of kinds with their weights."""
    return [
        {"user": random.randrange(_KEYS), "at": at, "kind": kind, "size": random.randrange(1_000)}
        for at, kind in enumerate(random.choices(list(kinds), list(kinds.values()), k=count))
    ]


def by_class(records: Sequence[Record]) -> list[Request]:
    """Make objects of dicts, with a class for each kind."""
    classes = {"failed": Failed, "login": LoggedIn}
    return [classes.get(it["kind"], Request)(it["user"], it["at"]) for it in records]


def batches(records: Sequence[Any]) -> list[Batch]:
    """Return records as columns, with an epoch at the end of each batch."""
    if records and isinstance(records[0], dict):
        keys, times = list(map(itemgetter("user"), records)), list(map(itemgetter("at"), records))
    else:
        keys, times = [it.user for it in records], [it.at for it in records]
    cuts = [*range(0, len(records), BATCH_SIZE), len(records)]
    return [
        Batch(keys[start:end], records[start:end], times[start:end], [(end - start, times[end - 1])])
        for start, end in pairwise(cuts)
    ]


def three_failed(failed: Pattern[Any], login: Pattern[Any]) -> Pattern[Any]:
    """Return the pattern of three failed logins and a success, in five minutes."""
    return failed.times(3).then(login).within(SPAN)


def absence(*kinds: Any) -> Pattern[Any]:
    """Return the pattern of A, then B, and no C for ten seconds, by predicates or by kinds."""
    first, second, never = (step(name, kind) for name, kind in zip("ABC", kinds, strict=True))
    return first.then(second).then_not(never, during=QUIET)


def five_rising() -> Pattern[Any]:
    """Return the pattern of five values in a row of which each is greater than the one before it."""
    return step("rise", given=_is_greater).times(5, by="next")


def _is_greater(value: Record, so_far: SoFar[Record]) -> bool:
    previous = so_far.last("rise")
    return previous is None or value["size"] > previous["size"]
