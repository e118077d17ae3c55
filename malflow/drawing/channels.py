"""Lines between two rows of boxes: each output gets a track of its own where its line runs sideways.

It is the "channel routing" of circuit boards, without its hard part: no line enters the row below under the output of
another, nor where another enters. So the tracks may be in any order, and different lines meet only where they cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from malflow.drawing.canvas import DOWN, LEFT, RIGHT, UP, Canvas

__all__ = ["Net", "channel"]


@dataclass(frozen=True, slots=True)
class Net:
    """A line from an output to where it enters boxes below, by their columns."""

    start: int
    ends: tuple[int, ...]

    @property
    def span(self) -> tuple[int, int]:
        """The leftmost and the rightmost column."""
        return min(self.start, *self.ends), max(self.start, *self.ends)


def channel(canvas: Canvas, top: int, nets: Sequence[Net]) -> int:
    """Draw lines between two rows; return the line below them. Lines that cross are not joined."""
    tracks, count = _tracks(nets)
    bottom = top + count + 1
    cells: dict[tuple[int, int], int] = {}
    for net, track in zip(nets, tracks, strict=True):
        if track is not None:
            _draw_sideways(cells, net, top + track)
    for net, track in zip(nets, tracks, strict=True):
        turn = bottom if track is None else top + track
        _draw_down(cells, net.start, top, turn)
        for end in net.ends if track is not None else ():
            _draw_down(cells, end, turn + 1, bottom)
    for (y, x), directions in cells.items():
        canvas.line(x, y, directions)
    return bottom


def _tracks(nets: Sequence[Net]) -> tuple[list[int | None], int]:
    """Return the track of each line, the first that is free, or None for straight ones; and the number of tracks."""
    found: list[int | None] = [None] * len(nets)
    ends: list[int] = []
    for number in sorted(range(len(nets)), key=lambda it: nets[it].span):
        left, right = nets[number].span
        if left == right:
            continue
        track = next((at for at, end in enumerate(ends) if end < left - 1), len(ends))
        ends[track : track + 1] = [right]
        found[number] = track
    return found, len(ends)


def _draw_sideways(cells: dict[tuple[int, int], int], net: Net, y: int) -> None:
    left, right = net.span
    for x in range(left, right + 1):
        cells[y, x] = (LEFT if x > left else 0) | (RIGHT if x < right else 0)
    cells[y, net.start] |= UP
    for end in net.ends:
        cells[y, end] |= DOWN


def _draw_down(cells: dict[tuple[int, int], int], x: int, top: int, bottom: int) -> None:
    """Draw a line downwards; it passes over lines that it crosses."""
    cells.update({(y, x): UP | DOWN for y in range(top, bottom)})
