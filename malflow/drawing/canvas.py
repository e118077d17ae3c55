"""A canvas of characters, for drawings in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from malflow.drawing.text import width

__all__ = ["DOWN", "LEFT", "RIGHT", "UP", "Canvas"]

LEFT, RIGHT, UP, DOWN = 1, 2, 4, 8

_LINES = " ╴╶─╵┘└┴╷┐┌┬│┤├┼"
"""The character for each sum of directions."""


class Canvas:
    """Lines of cells, each with a character; they grow where something is drawn."""

    def __init__(self) -> None:
        self._cells: list[dict[int, str]] = []

    def put(self, x: int, y: int, character: str) -> None:
        """Set a cell."""
        while len(self._cells) <= y:
            self._cells.append({})
        self._cells[y][x] = character

    def write(self, x: int, y: int, text: str) -> None:
        """Write a text from a cell on; accents share the cell of their letter, and an ideograph fills two."""
        for character in text:
            size = width(character)
            if size == 0:
                self.put(x - 1, y, self._cells[y].get(x - 1, "") + character)
                continue
            self.put(x, y, character)
            if size > 1:
                self.put(x + 1, y, "")
            x += size

    def line(self, x: int, y: int, directions: int) -> None:
        """Set a cell to the character of lines in these directions."""
        self.put(x, y, _LINES[directions])

    def vertical(self, x: int, top: int, bottom: int) -> None:
        """Draw a line downwards, to the line before the last."""
        for y in range(top, bottom):
            self.put(x, y, "│")

    def rule(self, y: int, title: str, right: int) -> None:
        """Draw a line across with a title."""
        self.write(0, y, f"┄ {title} ".ljust(right, "┄"))

    def box(self, left: int, top: int, size: int, lines: Sequence[str], style: str) -> None:
        """Draw a box with lines of text; the style has its corners and borders."""
        self.write(left, top, f"{style[0]}{style[1] * (size - 2)}{style[2]}")
        for number, line in enumerate(lines, top + 1):
            self.put(left, number, style[3])
            self.write(left + 1, number, f" {line}{' ' * (size - 3 - width(line))}")
            self.put(left + size - 1, number, style[3])
        self.write(left, top + len(lines) + 1, f"{style[4]}{style[1] * (size - 2)}{style[5]}")

    def text(self) -> str:
        """Return the lines, without blanks at their ends."""
        rows = ["".join(cells.get(x, " ") for x in range(max(cells, default=-1) + 1)) for cells in self._cells]
        return "".join(f"{row.rstrip()}\n" for row in rows)
