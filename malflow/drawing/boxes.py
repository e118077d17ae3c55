"""Pictures for a terminal: boxes from top to bottom with lines between, or a list where they don't fit.

It is the "channel routing" of circuit boards, without its hard part: no line enters the row below under the output of
another, nor where another enters. So the tracks may be in any order, and different lines meet only where they cross.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from malflow.drawing.layers import Layers, layered, positions
from malflow.drawing.picture import NAME_LIMIT, Box, Picture
from malflow.drawing.text import fitted, width

__all__ = [
    "DOWN",
    "LEFT",
    "RIGHT",
    "UP",
    "Canvas",
    "Net",
    "boxes",
    "channel",
]

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


_LIMITS = (NAME_LIMIT, 30, 24, 18, 13)
"""The widths of text to try, in characters, until the boxes fit."""

_GAP, _BEND, _LEAST = 2, 3, 5

_NAME, _KIND = 2, 3
"""The columns of a list that become narrower where there is no room."""


def boxes(picture: Picture, *, stages: bool = False, limit: int = 100) -> str:
    """Return a picture as lines of text no wider than the limit; ║ marks where records change workers.

    Where the boxes don't fit side by side, a list has each operator with the numbers of its inputs.

    Args:
        picture: the picture.
        stages: whether to show the stages.
        limit: the number of columns of the terminal.
    """
    edges = [(arrow.source, arrow.output, arrow.target) for arrow in picture.arrows]
    layers = layered([box.stage for box in picture.boxes], edges)
    for longest in _LIMITS:
        rows = _Rows(picture, layers, longest)
        if rows.right <= limit:
            return rows.drawn(stages=stages)
    return "".join(f"{fitted(line, max(limit, 1))}\n" for line in _listed(picture, limit, stages=stages))


@dataclass(frozen=True, slots=True)
class _Pin:
    """An output of a box, or a bend, on the lower border of a row.

    Attributes:
        x: its column.
        label: the name of the output, or an empty text.
    """

    x: int
    label: str


class _Rows:
    """The rows of boxes of a picture.

    Args:
        picture: the picture.
        layers: its boxes in rows, which are the columns of the layout.
        longest: the greatest width of a line of text.
    """

    def __init__(self, picture: Picture, layers: Layers, longest: int) -> None:
        self._picture = picture
        self._layers = layers
        self._texts = [box.lines(longest) for box in picture.boxes]
        self._nets = _nets(picture, layers)
        self._read = _read(picture)
        sizes = [*map(self._width, range(layers.nodes)), *[_BEND] * (len(layers.columns) - layers.nodes)]
        self._sizes = sizes
        self._lefts = _lefts(layers, sizes)
        self.right = max((left + size for left, size in zip(self._lefts, sizes, strict=True)), default=0)

    def _width(self, index: int) -> int:
        outputs = sum(len(label) + 2 for _, label in self._read[index] if label)
        inputs = 2 * len(self._layers.before[index])
        return max([_LEAST, outputs + 2, inputs + 3, *(width(line) + 4 for line in self._texts[index])])

    def drawn(self, *, stages: bool) -> str:
        """Return the lines."""
        canvas, y, stage = Canvas(), 0, -1
        entries: dict[int, int] = {}
        for number, row in enumerate(self._layers.order):
            rows_stage = max(self._picture.boxes[item].stage for item in row if item < self._layers.nodes)
            if stages and number == 0:
                canvas.rule(y, f"stage {rows_stage}", self.right)
                y += 1
            stage = rows_stage
            pins, bottom = self._row(canvas, y, row, entries)
            y = bottom
            if number + 1 < len(self._layers.order):
                following = self._layers.order[number + 1]
                later = max(self._picture.boxes[item].stage for item in following if item < self._layers.nodes)
                rule = f"stage {later}" if stages and later != stage else None
                y, entries = self._channel(canvas, y, pins, following, rule)
        return canvas.text()

    def _row(
        self, canvas: Canvas, y: int, row: Sequence[int], entries: dict[int, int]
    ) -> tuple[dict[tuple[int, int], _Pin], int]:
        """Draw a row; return its pins by box or bend and output, and the line below it."""
        height = max(len(self._texts[item]) + 2 for item in row if item < self._layers.nodes)
        pins: dict[tuple[int, int], _Pin] = {}
        for item in row:
            if item >= self._layers.nodes:
                pins[item, 0] = _Pin(entries[item], "")
                canvas.vertical(entries[item], y, y + height)
                continue
            box, left, size = self._picture.boxes[item], self._lefts[item], self._sizes[item]
            canvas.box(left, y, size, self._texts[item], _style(box))
            low = y + len(self._texts[item]) + 2
            for output, pin in self._pins(item):
                pins[item, output] = pin
                canvas.put(pin.x, low - 1, "┯" if box.mark else "┬")
                canvas.vertical(pin.x, low, y + height)
        return pins, y + height

    def _pins(self, item: int) -> Iterator[tuple[int, _Pin]]:
        """Yield the outputs of a box that are read, with their places."""
        read = self._read[item]
        total = sum(len(label) + 2 for _, label in read) - 1
        x = self._lefts[item] + max(1, (self._sizes[item] - total) // 2)
        for output, label in read:
            yield output, _Pin(x if label else self._lefts[item] + self._sizes[item] // 2, label)
            x += len(label) + 2

    def _channel(
        self,
        canvas: Canvas,
        y: int,
        pins: dict[tuple[int, int], _Pin],
        following: Sequence[int],
        rule: str | None,
    ) -> tuple[int, dict[int, int]]:
        """Draw the lines between two rows; return the line below them, and where they enter each bend."""
        ends = {source: self._nets[source] for source in pins}
        entries = self._entries(pins, ends, following)
        nets = [Net(pins[source].x, tuple(entries[source, item] for item in ends[source])) for source in pins]
        labelled = [pin for pin in pins.values() if pin.label]
        top = y + bool(labelled) + (rule is not None)
        if rule is not None:
            canvas.rule(top - 1, rule, self.right)
        for pin in pins.values():
            canvas.vertical(pin.x, y, top)
        for pin in labelled:
            canvas.write(pin.x + 1, y, pin.label)
        bottom = channel(canvas, top, nets)
        for (_, item), x in entries.items():
            if item < self._layers.nodes:
                canvas.put(x, bottom - 1, "▼")
        return bottom, {item: x for (_, item), x in entries.items()}

    def _entries(
        self,
        pins: dict[tuple[int, int], _Pin],
        ends: dict[tuple[int, int], list[int]],
        following: Sequence[int],
    ) -> dict[tuple[tuple[int, int], int], int]:
        """Return where each line enters a box or bend of a row: straight below its output, or below none."""
        taken = {pin.x for pin in pins.values()}
        entries = {}
        for item in following:
            first, last = self._lefts[item], self._lefts[item] + self._sizes[item] - 1
            if item < self._layers.nodes:
                first, last = first + 1, last - 1
            free = [x for x in range(first, last + 1) if x not in taken]
            slanted = []
            for source in sorted((it for it in pins if item in ends[it]), key=lambda it: pins[it].x):
                if first <= pins[source].x <= last:
                    entries[source, item] = pins[source].x
                else:
                    slanted.append(source)
            near = _columns_near((first + last) / 2, free, len(slanted))
            entries.update({(source, item): x for source, x in zip(slanted, near, strict=True)})
        return entries


def _columns_near(middle: float, free: Sequence[int], count: int) -> list[int]:
    """Return so many free columns near the middle, from left to right, side by side only where there is no room."""
    nearest = sorted(free, key=lambda x: abs(x - middle))
    found: list[int] = []
    for x in nearest:
        if len(found) < count and not {x - 1, x + 1}.intersection(found):
            found.append(x)
    found += [x for x in nearest if x not in found][: count - len(found)]
    return sorted(found)


def _style(box: Box) -> str:
    if box.mark:
        return "┏━┓┃┗┛"
    return "╭─╮│╰╯" if box.kind in ("source", "sink") else "┌─┐│└┘"


def _read(picture: Picture) -> list[list[tuple[int, str]]]:
    """Return the outputs of each box that are read, with their names where it has several, and the forms of columns."""
    found: list[dict[int, list[str]]] = [{} for _ in picture.boxes]
    for arrow in picture.arrows:
        texts = found[arrow.source].setdefault(arrow.output, [arrow.label] if arrow.label else [])
        if arrow.form is not None and f"[{arrow.form}]" not in texts:
            texts.append(f"[{arrow.form}]")
    return [sorted((output, " ".join(texts)) for output, texts in outputs.items()) for outputs in found]


def _nets(picture: Picture, layers: Layers) -> dict[tuple[int, int], list[int]]:
    """Return the boxes and bends in the next row that each output of a box, and each bend, leads to."""
    nets: dict[tuple[int, int], list[int]] = {}
    for arrow, path in zip(picture.arrows, layers.paths, strict=True):
        for at, (left, right) in enumerate(pairwise(path)):
            ends = nets.setdefault((left, 0 if at else arrow.output), [])
            if right not in ends:
                ends.append(right)
    return nets


def _lefts(layers: Layers, sizes: Sequence[int]) -> list[int]:
    """Return the left border of each box and bend."""
    lefts = [round(at - size / 2) for at, size in zip(positions(layers, sizes, _GAP), sizes, strict=True)]
    for row in layers.order:
        end = 0
        for item in row:
            lefts[item] = max(lefts[item], end)
            end = lefts[item] + sizes[item] + _GAP
    return lefts


def _listed(picture: Picture, limit: int, *, stages: bool) -> Iterator[str]:
    """Yield a line for each operator, with the numbers of those that it reads."""
    inputs: list[list[str]] = [[] for _ in picture.boxes]
    for arrow in picture.arrows:
        inputs[arrow.target].append(" ".join([str(arrow.source + 1), *([arrow.text] if arrow.text else [])]))
    rows = [
        [f"{number:>4}", f"← {', '.join(reads)}" if reads else "", *box.lines()]
        for number, (reads, box) in enumerate(zip(inputs, picture.boxes, strict=True), 1)
    ]
    widths = [
        max(width(row[at]) if at < len(row) else 0 for row in rows) for at in range(max(map(len, rows), default=0))
    ]
    for column, least in ((_KIND, 12), (_NAME, 12)):
        if len(widths) > column:
            over = sum(widths) + len(widths) * _GAP - limit
            widths[column] = max(min(widths[column], least), widths[column] - max(over, 0))
    stage = None
    for index in sorted(range(len(rows)), key=lambda it: picture.boxes[it].stage if stages else 0):
        if stages and picture.boxes[index].stage != stage:
            stage = picture.boxes[index].stage
            yield f"stage {stage}"
        yield "  ".join(_padded(cell, size) for cell, size in zip(rows[index], widths, strict=False)).rstrip()


def _padded(text: str, size: int) -> str:
    shown = fitted(text, size)
    return shown + " " * (size - width(shown))
