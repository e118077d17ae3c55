"""The progress of an operator in event time, and the results that it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

__all__ = ["OperatorTime", "Reached", "Running", "Waiting", "merge_held"]


class Waiting(NamedTuple):
    """The results that an operator holds until an epoch releases them.

    Attributes:
        what: their kind, in the plural, such as ``windows``.
        open: their number.
        until: the least epoch that releases one of them; None if unknown.
    """

    what: str
    open: int
    until: Any = None

    def __str__(self) -> str:
        if self.open != 1:
            return f"{self.open} {self.what}"
        noun, *rest = re.split(r"(?= of | with )", self.what, maxsplit=1)
        return f"1 {noun.removesuffix('s')}{''.join(rest)}"


def merge_held(found: dict[str, Waiting], held: Mapping[str, Waiting]) -> None:
    """Add the open results of one worker to the results of others, by operator."""
    for name, it in held.items():
        before = found.get(name)
        found[name] = Waiting(it.what, it.open + (0 if before is None else before.open))


class Running(NamedTuple):
    """The operator that is running at a moment.

    Attributes:
        operator: its name.
        waits: why it is waiting, or None.
    """

    operator: str
    waits: str | None = None


class OperatorTime(NamedTuple):
    """The time of an operator on one worker, for `explain_time`.

    Attributes:
        waiting: the results that it holds, or None.
        edges: of an operator with several inputs: the epoch of each, None for an input without one. Finished inputs are
            left out.
        epoch: of an epoch generator: its epoch; None if it has issued none.
        parts: of a generator with an epoch for each part: the epochs of those that hold the stream's back.
        heard: of a source: the start of the tick that polled the last record of each unfinished part; None if there was
            no record.
    """

    waiting: Waiting | None = None
    edges: Mapping[int, Any] | None = None
    epoch: Any = None
    parts: Sequence[tuple[Any, Any]] = ()
    heard: Sequence[tuple[Any, datetime | None]] = ()


class Reached(NamedTuple):
    """The progress of an epoch generator on one worker, or in one part.

    Attributes:
        epoch: its last epoch; None if it has issued none.
        is_finished: whether its source had finished on that worker before the tick.
        silence: how long it has been silent; None if it is not.
        counts_tick: whether the silence includes the tick at whose end it is reported.
        holds: whether an upstream operator that holds records is reported, rather than the generator.
    """

    epoch: Any
    is_finished: bool
    silence: timedelta | None = None
    counts_tick: bool = False
    holds: bool = False
