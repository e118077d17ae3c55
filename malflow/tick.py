"""What a tick may know of the world outside its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

__all__ = ["Tick"]

_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick, as its runtime made it: the same for all workers, and again the same when a tick is repeated.

    Attributes:
        number: the number of the tick.
        now: when it began, in UTC, never before an earlier tick of the job. Operators read no other clock.
        started: when the first tick of the run began.
        ended: the sources without an unfinished part on any worker.
        finished: sources and workers: the source has no unfinished part on that worker.
        lifts: epochs by operator: the generator issues the epoch on the workers on which its source is finished.
        final: whether this is the last tick, in which the epoch `MAX` flows. It is no part of the history of the state.
    """

    number: int = 0
    now: datetime = _BEFORE_ALL
    started: datetime = _BEFORE_ALL
    ended: frozenset[str] = frozenset()
    finished: frozenset[tuple[str, int]] = frozenset()
    lifts: Mapping[str, Any] = field(default_factory=dict)
    final: bool = False
