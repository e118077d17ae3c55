"""Ticks at given times, with given records of each part; nothing sleeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from malflow.engine.ticks import RunClock
from malflow.sources.contract import StatefulSourceImpl

__all__ = ["PARTS", "HandClock", "Polls", "Step", "SteppingClock", "WholeTicks", "scripts"]

PARTS = ("a", "b", "c")
START = datetime(2026, 1, 1, tzinfo=UTC)


class HandClock(RunClock):
    """A clock that a test sets, in seconds."""

    def set(self, seconds: float) -> None:
        """Set the time of the next tick."""
        self.now = START + timedelta(seconds=seconds)

    def read(self) -> tuple[datetime, datetime]:
        """Return the time that was set."""
        return self.now, START


class SteppingClock(RunClock):
    """A clock that goes on by given seconds each time it is read, and then stands still."""

    def __init__(self, gaps: Iterable[float]) -> None:
        super().__init__()
        self._gaps = iter(gaps)
        self.now = START

    def read(self) -> tuple[datetime, datetime]:
        """Continue."""
        self.now += timedelta(seconds=next(self._gaps, 0))
        return self.now, START


class Polls(StatefulSourceImpl[Any, Any, Any, int]):
    """A source whose parts emit a list of timestamps each poll; a value is a number that tells records apart."""

    def __init__(self, script: Mapping[Any, Sequence[Sequence[int]]], *, keyed: bool = True) -> None:
        self.keyed = keyed  # type: ignore[misc] # it differs between instances here
        self.script = script

    def list_parts(self) -> list[Any]:
        """Return the parts of the script."""
        return list(self.script)

    def build_part(self, part: Any, state: int | None) -> Any:
        """Return a reader that begins at a poll."""
        return _Part(part, self.script[part], state or 0)


class _Part:
    def __init__(self, part: Any, polls: Sequence[Sequence[int]], position: int) -> None:
        self._part, self._polls, self._position = part, polls, position

    def poll_batch(self, _limit: int) -> tuple[list[Any], list[int]]:
        at = self._position
        stamps = list(self._polls[at]) if at < len(self._polls) else []
        self._position += 1
        return [(self._part, at, index) for index in range(len(stamps))], stamps

    def is_finished(self) -> bool:
        return self._position >= len(self._polls)

    def snapshot(self) -> int:
        return self._position


class Step(NamedTuple):
    """A tick: how many seconds it begins after the one before, and the timestamps of the part that emits any."""

    gap: int
    part: int | None
    stamps: Sequence[int]


@st.composite
def scripts(draw: Any) -> list[Step]:
    """Return phases in which some parts take turns and the others are silent; timestamps follow the ticks."""
    found: list[Step] = []
    jitter = st.integers(-8, 8)
    for _ in range(draw(st.integers(1, 5))):
        busy = draw(st.lists(st.integers(0, 2), unique=True, max_size=3))
        gap = draw(st.integers(0, 12))
        for turn in range(draw(st.integers(1, 6))):
            now = 4 * len(found) + 20
            stamps = [now + draw(jitter) for _ in range(draw(st.integers(1, 2)))] if busy else []
            found.append(Step(gap, busy[turn % len(busy)] if busy else None, stamps))
    return found


class WholeTicks(StatefulSourceImpl[Any, Any, Any, int]):
    """A source that emits a list of values each tick, however many a tick may take; timestamps count from 0."""

    keyed = False

    def __init__(self, ticks: Sequence[Sequence[Any]]) -> None:
        self._ticks = ticks

    def list_parts(self) -> list[Any]:
        """Return the only part."""
        return ["all"]

    def build_part(self, part: Any, state: int | None) -> Any:
        """Return a reader that begins at a tick."""
        return _WholeTicksPart(self._ticks, state or 0)


class _WholeTicksPart:
    def __init__(self, ticks: Sequence[Sequence[Any]], position: int) -> None:
        self._ticks, self._position = ticks, position

    def poll_batch(self, _limit: int) -> tuple[list[Any], list[int]]:
        at = self._position
        values = list(self._ticks[at]) if at < len(self._ticks) else []
        self._position += 1
        first = sum(map(len, self._ticks[:at]))
        return values, list(range(first, first + len(values)))

    def is_finished(self) -> bool:
        return self._position >= len(self._ticks)

    def snapshot(self) -> int:
        return self._position
