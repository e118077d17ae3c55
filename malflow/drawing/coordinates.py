"""The coordinates of a picture, in pixels: boxes, the points of arrows, and the bands of stages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from malflow.drawing.layers import Layers, layered, positions
from malflow.drawing.picture import NAME_LIMIT, Box, Picture
from malflow.drawing.text import fitted, width

__all__ = ["COMPACT", "HEAD", "LINE", "Band", "Measures", "Place", "Placed", "name_lines", "placed"]

LINE = 17
"""The height of a line of text."""

HEAD = 24
"""The height above the boxes, for the names of stages and remarks."""

_MARGIN, _BEND, _PORT = 16, 6, 16

_BREAK = re.compile(r"(?<=[^ _./-])[ _./-]+(?=[^ _./-])")
"""The places where a name can be split into two lines."""


@dataclass(frozen=True, slots=True)
class Measures:
    """The sizes of a kind of drawing, in pixels.

    Attributes:
        name: the width of a character of a name.
        small: the width of any other character.
        padding: the distance between the border of a box and its text.
        gap: the least distance between two boxes of a column.
        gutter: the distance between two columns.
        stage_gutter: the distance between two columns of different stages.
        least: the least width of a box.
        limit: the greatest width of a name, in characters.
        line: the width of a name, in characters, above which it is split into two lines if possible.
        height: the height of each box; None if it depends on the facts in the box, which are then lines of text.
    """

    name: float
    small: float
    padding: int
    gap: int
    gutter: int
    stage_gutter: int
    least: int
    limit: int
    line: int
    height: int | None


_FULL = Measures(7.7, 6.6, 12, 20, 44, 72, 0, NAME_LIMIT, NAME_LIMIT, None)

COMPACT = Measures(7.3, 7.2, 10, 18, 20, 32, 104, 22, 10, 54)
"""Boxes with a name and a line of figures, for a page that shows ten columns side by side in text of 11 pixels."""


@dataclass(frozen=True, slots=True)
class Place:
    """The rectangle of a box: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Band:
    """The part of the picture, from left to right, that belongs to a stage."""

    stage: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Placed:
    """The coordinates of a picture.

    Attributes:
        boxes: the rectangle of each box.
        points: the points of each arrow, from left to right; between two of equal height, it is straight.
        bands: the stages.
        width: the width of the picture.
        height: its height.
    """

    boxes: list[Place]
    points: list[list[tuple[float, float]]]
    bands: list[Band]
    width: float
    height: float


def placed(picture: Picture, measures: Measures = _FULL) -> Placed:
    """Return the coordinates of a picture."""
    edges = [(arrow.source, arrow.output, arrow.target) for arrow in picture.arrows]
    layers = layered([box.stage for box in picture.boxes], edges)
    heights = [_height(box, measures) for box in picture.boxes]
    sizes = [*heights, *[float(_BEND)] * (len(layers.columns) - layers.nodes)]
    centres = [round(at, 1) for at in positions(layers, sizes, measures.gap)]
    lefts, widths = _columns(picture, layers, measures)
    top = _MARGIN + HEAD
    boxes = [
        Place(lefts[column], round(top + centre - height / 2, 1), widths[column], height)
        for column, centre, height in zip(layers.columns, centres, heights, strict=False)
    ]
    points = [
        _points(picture, arrow, path, layers, centres, lefts, widths, measures.small)
        for arrow, path in enumerate(layers.paths)
    ]
    right = lefts[-1] + widths[-1] + _MARGIN if lefts else 2 * _MARGIN
    low = max((centre + size / 2 for centre, size in zip(centres, sizes, strict=True)), default=0.0)
    return Placed(boxes, points, _bands(picture, layers, lefts, right, measures), right, round(top + low + _MARGIN, 1))


def name_lines(name: str, measures: Measures) -> list[str]:
    """Return a name as short, printable text: on one line, or on two if it is long and can be split."""
    text = fitted(name, measures.limit)
    breaks = [it.end() for it in _BREAK.finditer(text)]
    if width(text) <= measures.line or not breaks:
        return [text]
    return min(([text[:at], text[at:]] for at in breaks), key=lambda it: max(map(width, it)))


def _height(box: Box, measures: Measures) -> float:
    height = measures.height or LINE * (1 + len(box.facts)) + measures.padding
    return max(height, _PORT * len(box.outputs))


def _columns(picture: Picture, layers: Layers, measures: Measures) -> tuple[list[float], list[float]]:
    """Return the left border and the width of each column; names of outputs and stages make room before the next."""
    widths = [float(measures.least)] * len(layers.order)
    gutters = [float(measures.gutter)] * len(layers.order)
    stages = [0] * len(layers.order)
    for box, column in zip(picture.boxes, layers.columns, strict=False):
        texts = [measures.name * width(line) for line in name_lines(box.name, measures)]
        if measures.height is None:
            texts += [measures.small * width(fact) for fact in box.facts]
        widths[column] = max(widths[column], round(max(texts) + 2 * measures.padding))
        stages[column] = box.stage
    for arrow in picture.arrows:
        if arrow.text is not None:
            column = layers.columns[arrow.source]
            gutters[column] = max(gutters[column], measures.gutter + measures.small * width(arrow.text))
    lefts = [float(_MARGIN)]
    for column in range(len(widths) - 1):
        more = measures.stage_gutter - measures.gutter if stages[column] != stages[column + 1] else 0
        lefts.append(round(lefts[-1] + widths[column] + gutters[column] + more))
    return lefts[: len(widths)], widths


def _points(
    picture: Picture,
    arrow: int,
    path: list[int],
    layers: Layers,
    centres: list[float],
    lefts: list[float],
    widths: list[float],
    small: float,
) -> list[tuple[float, float]]:
    top, edge = _MARGIN + HEAD, picture.arrows[arrow]
    outputs = len(picture.boxes[edge.source].outputs)
    shift = (edge.output - (outputs - 1) / 2) * _PORT
    first, last = layers.columns[path[0]], layers.columns[path[-1]]
    right, y = lefts[first] + widths[first], round(top + centres[path[0]] + shift, 1)
    points = [(right, y)]
    if edge.text is not None:
        points.append((round(right + small * width(edge.text), 1), y))
    for bend in path[1:-1]:
        left = lefts[layers.columns[bend]]
        y = round(top + centres[bend], 1)
        points += [(left, y), (left + widths[layers.columns[bend]], y)]
    return [*points, (lefts[last], round(top + centres[path[-1]], 1))]


def _bands(picture: Picture, layers: Layers, lefts: list[float], right: float, measures: Measures) -> list[Band]:
    """Return the stages. They meet in the middle between their columns."""
    first: dict[int, int] = {}
    for box, column in zip(picture.boxes, layers.columns, strict=False):
        first[box.stage] = min(first.get(box.stage, column), column)
    starts = {
        stage: 0.0 if column == 0 else lefts[column] - measures.gutter / 2 for stage, column in sorted(first.items())
    }
    borders = [*starts.values(), right]
    return [Band(stage, start, end - start) for stage, (start, end) in zip(starts, pairwise(borders), strict=True)]
