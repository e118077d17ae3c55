"""Progress bars for the sources that know the size of their input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from malflow.cli.glyphs import bar
from malflow.cli.texts import duration
from malflow.drawing.text import fitted
from malflow.store.redaction import safe_line

__all__ = ["Bars"]

_WIDTH: Final = 30
"""The widest bar in columns: a column is then about 3 % of the input. Half of it shows steps of 7 %; double fits only
terminals wider than 80 columns."""

_LEAST: Final = 5
"""The narrowest bar in columns; a shorter one shows less than the percentage beside it."""

_NAME: Final = 24
"""The columns for a name: room for most names, and for a whole bar on a terminal of 80 columns. Fewer cut names sooner,
more shorten the bars."""

_MOST: Final = 8
"""The most bars that are drawn; other sources are only counted."""
_DAY: Final = 86_400.0
"""The seconds of a day: the pace so far says little about a longer time, so it is not shown."""


class Bars:
    """The progress bars of a run, with the time left, estimated from the pace since the first look."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, float]] = {}

    def lines(self, progress: Mapping[str, Any], seconds: float, width: int) -> list[str]:
        """Return a line for each source that knows the size of its input.

        Args:
            progress: the document of the run's progress.
            seconds: the time by a monotonic clock.
            width: the columns of the terminal.
        """
        found = list(self._shares(progress))
        lines = [self._line(name, share, seconds, width) for name, share in found[:_MOST]]
        return [*lines, f"and {len(found) - _MOST} more sources"] if len(found) > _MOST else lines

    def text(self, progress: Mapping[str, Any], seconds: float) -> str:
        """Return the shares in one line, without bars."""
        return "   ".join(
            safe_line(f"{name} {share:.0%}{self._left(name, share, seconds)}") for name, share in self._shares(progress)
        )

    @staticmethod
    def _shares(progress: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        for it in progress["operators"]:
            if it.get("share") is not None:
                read, whole = it["share"]
                yield it["name"], (read / whole if whole else 1.0)

    def _line(self, name: str, share: float, seconds: float, width: int) -> str:
        rest = f" {share:>4.0%}{self._left(name, share, seconds)}"
        label = fitted(safe_line(name), _NAME)
        room = min(_WIDTH, width - len(label) - len(rest) - 1)
        return f"{label} {bar(share, room)}{rest}" if room >= _LEAST else f"{label}{rest}"

    def _left(self, name: str, share: float, seconds: float) -> str:
        """Return the time left as a text; empty if it can't be estimated."""
        at, before = self._first.setdefault(name, (seconds, share))
        passed, done = seconds - at, share - before
        if share >= 1 or passed < 1 or done <= 0:
            return ""
        left = passed / done * (1 - share)
        return "" if left > _DAY else f", {duration(left)} left"
