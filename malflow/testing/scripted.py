"""A source that follows a script of records, crashes, pauses and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from malflow.checks import is_number
from malflow.errors import GraphError
from malflow.message import NoKey
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from malflow.testing.faults import Crash
from malflow.words import short_repr

__all__ = ["CRASH", "END", "PAUSE", "Mark", "Pause", "ScriptedPart", "ScriptedSource", "Timed"]


class Mark(Enum):
    """A control item in a script."""

    CRASH = "crash"
    PAUSE = "pause"
    END = "end"

    def __repr__(self) -> str:
        return self.name

    def __call__(self, seconds: float) -> Pause:
        """Return a pause of some seconds of tick time; only `PAUSE` can be called."""
        if self is not Mark.PAUSE or not is_number(seconds, above=0):
            raise GraphError(f"write PAUSE(seconds), with a positive number; got {self!r}({short_repr(seconds)})")
        return Pause(seconds)


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of some time: polls without records, and the time between them."""

    seconds: float

    def __repr__(self) -> str:
        return f"PAUSE({self.seconds!r})"


CRASH: Final = Mark.CRASH
"""Raise `Crash` here, after the items before it were processed; once per source object, so that a restart gets past it.
"""

PAUSE: Final = Mark.PAUSE
"""Return nothing from one poll, so that the items before and after are in different ticks.

``PAUSE(seconds)`` returns nothing from three polls, and the tick clock skips that time after the second, without a
sleep.
"""

END: Final = Mark.END
"""End here. A run that resumes from a snapshot taken at this end continues after it."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A value with an explicit timestamp; a plain value's timestamp is its index among the values of its part."""

    value: Any
    timestamp: Any


class ScriptedSource(StatefulSourceImpl[Any, Any, Any, int]):
    """A source for tests that follows a script and can resume from a position.

    A script consists of values, `Timed` values, and the marks `CRASH`, `PAUSE`, ``PAUSE(seconds)`` and `END`. Create
    the source outside ``build_dataflow``: it remembers which crashes have happened.

    Args:
        script: the items of the one part (its records have no key); or a mapping from part to items (records have their
            part as key).

    >>> part = ScriptedSource(["a", "b", PAUSE, "c", Timed("d", 10), END, "e"]).build_part(NoKey, None)
    >>> part.poll_batch(9), part.poll_batch(9)
    ((['a', 'b'], [0, 1]), ([], []))
    >>> part.poll_batch(9), part.is_finished()
    ((['c', 'd'], [2, 10]), True)
    >>> ScriptedSource(["a", END, "b"]).build_part(NoKey, 2).poll_batch(9)
    (['b'], [1])
    """

    def __init__(self, script: Iterable[Any] | Mapping[Any, Iterable[Any]]) -> None:
        # one class for both kinds, so that a test needs one name
        self.keyed = isinstance(script, Mapping)  # type: ignore[misc] # it differs between instances here
        parts = script if isinstance(script, Mapping) else {NoKey: script}
        self._scripts = {part: tuple(_polls(items)) for part, items in parts.items()}
        self._crashed: set[tuple[Any, int]] = set()

    def list_parts(self) -> Iterable[Any]:
        """Return the parts, in the order of the script."""
        return list(self._scripts)

    def build_part(self, part: Any, state: int | None) -> ScriptedPart:
        """Return a reader that starts at an index of the script, marks included; ``PAUSE(seconds)`` counts as three.

        Raises:
            GraphError: if the script has fewer items than were read before.
        """
        if state is not None and state > len(self._scripts[part]):
            raise GraphError(
                f"part {short_repr(part)} of a ScriptedSource has {len(self._scripts[part])} items, but its snapshot "
                "says "
                f"that {state} were read; a script may only grow between runs: append to it, or pass restore=None"
            )
        return ScriptedPart(part, self._scripts[part], state or 0, self._crashed)


def _polls(items: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of a script, one for each poll, with a pause before and after each pause that takes time.

    The first pause ends a tick that polls until it gets nothing. Time thus passes between two ticks without records.
    """
    for item in items:
        yield from (PAUSE, item, PAUSE) if isinstance(item, Pause) else (item,)


class ScriptedPart(StatefulSourcePartition[Any, Any, int]):
    """The reader of one part's script."""

    def __init__(self, part: Any, script: Sequence[Any], position: int, crashed: set[tuple[Any, int]]) -> None:
        self._part = part
        self._script = script
        self._position = position
        self._index = sum(not isinstance(item, (Mark, Pause)) for item in script[:position])
        self._crashed = crashed
        self._skipped = timedelta(0)

    def poll(self) -> tuple[Any, Any] | None:
        """Return the next record."""
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[list[Any], list[Any]]:
        """Return the records up to the next mark.

        Raises:
            Crash: if the next item is a `CRASH` that has not happened yet.
        """
        values: list[Any] = []
        timestamps: list[Any] = []
        while len(values) < limit and self._position < len(self._script):
            item = self._script[self._position]
            if isinstance(item, (Mark, Pause)):
                if values or self._stops_at(item):
                    break
                continue
            timed = item if isinstance(item, Timed) else Timed(item, self._index)
            values.append(timed.value)
            timestamps.append(timed.timestamp)
            self._position += 1
            self._index += 1
        return values, timestamps

    def is_finished(self) -> bool:
        """Whether the script ends here, or has an `END` here."""
        return self._position == len(self._script) or self._script[self._position] is END

    def snapshot(self) -> int:
        """Return the index of the next item; at an `END`, of the item after it."""
        at_end = self._position < len(self._script) and self._script[self._position] is END
        return self._position + at_end

    def take_skipped(self) -> timedelta:
        """Return the time that the tick clock skips now."""
        skipped, self._skipped = self._skipped, timedelta(0)
        return skipped

    def _stops_at(self, mark: Mark | Pause) -> bool:
        """Apply a mark; return whether the poll ends here."""
        if mark is END:
            return True
        here = (self._part, self._position)
        self._position += 1
        if isinstance(mark, Pause):
            self._skipped += timedelta(seconds=mark.seconds)
            return True
        if mark is CRASH and here not in self._crashed:
            self._crashed.add(here)
            raise Crash(f"part {short_repr(self._part)} crashed at item {self._position - 1}")
        return mark is PAUSE
