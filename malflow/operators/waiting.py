"""How far an operator has come in event time, and what it waits for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

__all__ = ["OperatorTime", "Reached", "Waiting", "merge_held"]


class Waiting(NamedTuple):
    """What an operator keeps until an epoch releases it.

    Attributes:
        what: its kind, in the plural, such as ``windows``.
        open: how many of them.
        until: the least epoch that releases one of them; None if that is not known.
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
    """Add the open results of one worker to those of others, by operator."""
    for name, it in held.items():
        before = found.get(name)
        found[name] = Waiting(it.what, it.open + (0 if before is None else before.open))


class OperatorTime(NamedTuple):
    """An operator on one worker, as an explanation of the run's time needs it.

    Attributes:
        waiting: what it keeps; None if it keeps nothing.
        edges: of an operator with several inputs: the epoch of each; None where an input has none. Inputs from which
            nothing comes any more are left out.
        epoch: of a generator of epochs: its epoch; None if it has issued none.
        parts: of a generator with an epoch for each part: the epochs of those that hold the stream's back.
        heard: of a source: when the tick began that polled the last record of each unfinished part; None if none has.
    """

    waiting: Waiting | None = None
    edges: Mapping[int, Any] | None = None
    epoch: Any = None
    parts: Sequence[tuple[Any, Any]] = ()
    heard: Sequence[tuple[Any, datetime | None]] = ()


class Reached(NamedTuple):
    """How far a generator of epochs has come on one worker, or in one part.

    Attributes:
        epoch: its last epoch; None if it has issued none.
        is_finished: whether its source had finished on that worker before the tick.
        silence: for how long it has been silent; None if it is not.
        counts_tick: whether that counts the tick at whose end it is reported, or only those before.
        holds: whether it is not the generator that is reported, but an operator before it that keeps records.
    """

    epoch: Any
    is_finished: bool
    silence: timedelta | None = None
    counts_tick: bool = False
    holds: bool = False
