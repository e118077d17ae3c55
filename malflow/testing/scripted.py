"""A source that does what its script says: gives records, crashes, pauses, ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from malflow.diagnostics import shown
from malflow.errors import GraphError
from malflow.message import NoKey
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from malflow.testing.crash import Crash

__all__ = ["CRASH", "END", "PAUSE", "Mark", "ScriptedPart", "ScriptedSource", "Timed"]


class Mark(Enum):
    """What a script says beside its records."""

    CRASH = "crash"
    PAUSE = "pause"
    END = "end"

    def __repr__(self) -> str:
        return self.name


CRASH: Final = Mark.CRASH
"""Raise `Crash` here, after what comes before has flowed through; once a source object, so that a restart passes it."""

PAUSE: Final = Mark.PAUSE
"""Give nothing for one poll here, so that what comes before and what comes after are in different ticks."""

END: Final = Mark.END
"""End here. A run that resumes from a snapshot taken at this end goes on behind it."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A value with a timestamp of its own; one without has its index among the values of its part."""

    value: Any
    timestamp: Any


class ScriptedSource(StatefulSourceImpl[Any, Any, Any, int]):
    """Give what a script says, from a position on: a source for tests that knows where it was.

    A script has values, `Timed` values, and the marks `CRASH`, `PAUSE` and `END`. Make the source outside of
    ``build_dataflow``: it remembers which crashes have happened.

    Args:
        script: the items of the one part, whose records have no key; or a mapping from part to items, whose records
            have their part as key.

    >>> part = ScriptedSource(["a", "b", PAUSE, "c", Timed("d", 10), END, "e"]).build_part(NoKey, None)
    >>> part.poll_batch(9), part.poll_batch(9)
    ((['a', 'b'], [0, 1]), ([], []))
    >>> part.poll_batch(9), part.is_finished()
    ((['c', 'd'], [2, 10]), True)
    >>> ScriptedSource(["a", END, "b"]).build_part(NoKey, 2).poll_batch(9)
    (['b'], [1])
    """

    def __init__(self, script: Iterable[Any] | Mapping[Any, Iterable[Any]]) -> None:
        # one class serves both kinds, so that a test needs one name
        self.keyed = isinstance(script, Mapping)  # type: ignore[misc] # it differs from object to object here
        parts = script if isinstance(script, Mapping) else {NoKey: script}
        self._scripts = {part: tuple(items) for part, items in parts.items()}
        self._crashed: set[tuple[Any, int]] = set()

    def list_parts(self) -> Iterable[Any]:
        """List the parts, in the order of the script."""
        return list(self._scripts)

    def build_part(self, part: Any, state: int | None) -> ScriptedPart:
        """Begin at an index of the script, marks counted.

        Raises:
            GraphError: if the script has fewer items than have been read.
        """
        if state is not None and state > len(self._scripts[part]):
            raise GraphError(
                f"part {shown(part)} of a ScriptedSource has {len(self._scripts[part])} items, and its snapshot says "
                f"that {state} were read; a script may only grow from run to run: add to its end, or pass restore=None"
            )
        return ScriptedPart(part, self._scripts[part], state or 0, self._crashed)


class ScriptedPart(StatefulSourcePartition[Any, Any, int]):
    """How far one part is with its script."""

    def __init__(self, part: Any, script: Sequence[Any], position: int, crashed: set[tuple[Any, int]]) -> None:
        self._part = part
        self._script = script
        self._position = position
        self._index = sum(not isinstance(item, Mark) for item in script[:position])
        self._crashed = crashed

    def poll(self) -> tuple[Any, Any] | None:
        """Give the next record."""
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[list[Any], list[Any]]:
        """Give the records up to the next mark.

        Raises:
            Crash: if the next item says so, for the first time.
        """
        values: list[Any] = []
        timestamps: list[Any] = []
        while len(values) < limit and self._position < len(self._script):
            item = self._script[self._position]
            if isinstance(item, Mark):
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
        """Tell whether the script ends here, or says that the part does."""
        return self._position == len(self._script) or self._script[self._position] is END

    def snapshot(self) -> int:
        """Give the index of the next item; behind an `END` where the part is at one."""
        at_end = self._position < len(self._script) and self._script[self._position] is END
        return self._position + at_end

    def _stops_at(self, mark: Mark) -> bool:
        """Do what a mark says, and tell whether nothing more comes for now."""
        if mark is END:
            return True
        here = (self._part, self._position)
        self._position += 1
        if mark is CRASH and here not in self._crashed:
            self._crashed.add(here)
            raise Crash(f"part {shown(self._part)} crashed at item {self._position - 1}")
        return mark is PAUSE
