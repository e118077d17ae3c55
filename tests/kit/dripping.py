"""A source that emits a record of each part from time to time, and need not end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from malflow.sources.contract import StatefulSourceImpl

__all__ = ["Drip", "Stamps"]

_PAUSE = 0.01


class Stamps(NamedTuple):
    """The timestamps of a part: some, then others by steps, or nothing more without a step."""

    first: Sequence[Any]
    step: Any = None


class Drip(StatefulSourceImpl[Any, Any, Any, int]):
    """Emits a record of each part every hundredth of a second, with its number as value.

    Args:
        parts: the timestamps of each part.
        ends: whether a part without further records is finished.
        lag: the lag that readers report.
        discovers: whether it looks for more parts.
    """

    def __init__(
        self, parts: Mapping[Any, Stamps], *, ends: bool = False, lag: int | None = None, discovers: bool = False
    ) -> None:
        self.parts, self.ends, self.lag = parts, ends, lag
        self.discover_every = timedelta(seconds=0.1) if discovers else None

    def list_parts(self) -> list[Any]:
        """Return the parts."""
        return list(self.parts)

    def build_part(self, part: Any, state: int | None) -> Any:
        """Return a reader."""
        return _Part(self, self.parts[part], state or 0)


class _Part:
    def __init__(self, source: Drip, stamps: Stamps, position: int) -> None:
        self._source, self._stamps, self._position = source, stamps, position
        self._due = time.monotonic()

    def _is_over(self) -> bool:
        return self._stamps.step is None and self._position >= len(self._stamps.first)

    def poll_batch(self, limit: int) -> tuple[list[Any], list[Any]]:
        numbers: list[int] = []
        while len(numbers) < limit and not self._is_over() and time.monotonic() >= self._due:
            self._due += _PAUSE
            numbers.append(self._position)
            self._position += 1
        return numbers, [self._stamp(number) for number in numbers]

    def _stamp(self, number: int) -> Any:
        first, step = self._stamps
        return first[number] if number < len(first) else first[-1] + (number - len(first) + 1) * step

    def is_finished(self) -> bool:
        return self._source.ends and self._is_over()

    def lag(self) -> int | None:
        return self._source.lag

    def snapshot(self) -> int:
        return self._position
