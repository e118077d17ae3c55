"""Pictures as SVG: text and shapes only, without scripts, styles or links."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from malflow.drawing.coordinates import HEAD, LINE, Band, Place, Placed, placed
from malflow.drawing.picture import Box, Picture
from malflow.drawing.text import markup

__all__ = ["svg"]

_INK, _QUIET, _LINE, _PAPER, _TINT, _BAND, _ACCENT = (
    "#1f2933",
    "#52606d",
    "#7b8794",
    "#ffffff",
    "#e9f0f7",
    "#7b8794",
    "#c2410c",
)
_ROUND = 14
"""The radius of the corners of sources and sinks, in pixels; other boxes have 4. The difference must be visible at a
glance."""


def svg(picture: Picture, *, stages: bool = False) -> str:
    """Return a picture as an SVG document that can be part of HTML.

    Sources and sinks are round, operators with state are tinted, and two bars are where records change workers.

    Args:
        picture: the picture.
        stages: whether to show the stages.
    """
    at = placed(picture)
    return "\n".join(_lines(picture, at, stages=stages)) + "\n"


def _lines(picture: Picture, at: Placed, *, stages: bool) -> Iterator[str]:
    size = f'width="{at.width:g}" height="{at.height:g}" viewBox="0 0 {at.width:g} {at.height:g}"'
    font = 'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="dataflow" {font}>'
    yield f'<rect width="{at.width:g}" height="{at.height:g}" fill="{_PAPER}"/>'
    for number, band in enumerate(at.bands if stages else ()):
        yield from _band(band, at.height, is_shaded=number % 2 == 0)
    for arrow, points in zip(picture.arrows, at.points, strict=True):
        yield from _arrow(points, picture.boxes[arrow.target])
    labels: dict[tuple[float, float], list[str]] = {}
    for arrow, points in zip(picture.arrows, at.points, strict=True):
        words = labels.setdefault(points[0], [arrow.label] if arrow.label else [])
        if arrow.form is not None and f"[{arrow.form}]" not in words:
            words.append(f"[{arrow.form}]")
    for (x, y), words in labels.items():
        yield f'<text x="{x + 4:g}" y="{y - 3:g}" fill="{_QUIET}" font-size="10">{markup(" ".join(words))}</text>'
    for box, place in zip(picture.boxes, at.boxes, strict=True):
        yield from _box(box, place)
    yield "</svg>"


def _band(band: Band, height: float, *, is_shaded: bool) -> Iterator[str]:
    opacity = 0.09 if is_shaded else 0.03
    yield (
        f'<rect x="{band.x:g}" y="0" width="{band.width:g}" height="{height:g}" fill="{_BAND}" '
        f'fill-opacity="{opacity}"/>'
    )
    yield f'<text x="{band.x + 16:g}" y="18" fill="{_QUIET}" font-size="11">stage {band.stage}</text>'


def _arrow(points: list[tuple[float, float]], target: Box) -> Iterator[str]:
    x, y = points[0]
    end, low = points[-1]
    tip = end - (6 if target.exchange else 0)
    points = [*points[:-1], (tip - 7, low)]
    route = [f"M{x:g} {y:g}"]
    for (left, before), (right, after) in pairwise(points):
        middle = (left + right) / 2
        curve = f"C{middle:g} {before:g} {middle:g} {after:g} {right:g} {after:g}"
        route.append(f"H{right:g}" if before == after else curve)
    yield f'<path d="{" ".join(route)}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>'
    yield f'<path d="M{tip:g} {low:g}l-8 -4v8z" fill="{_LINE}"/>'


def _box(box: Box, place: Place) -> Iterator[str]:
    x, y, width, height = place.x, place.y, place.width, place.height
    radius = _ROUND if box.kind in ("source", "sink") else 4
    stroke = f'stroke="{_ACCENT}" stroke-width="2.5"' if box.mark else f'stroke="{_QUIET}"'
    fill = _TINT if box.state else _PAPER
    yield "<g>"
    yield f"<title>{markup(chr(10).join([box.label, *box.facts, *box.remarks]))}</title>"
    yield (f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" fill="{fill}" {stroke}/>')
    if box.exchange:
        yield f'<path d="M{x - 5:g} {y:g}v{height:g}M{x - 2:g} {y:g}v{height:g}" stroke="{_QUIET}" stroke-width="1.5"/>'
    lines = [box.label, *box.facts]
    first = y + height / 2 - LINE * len(lines) / 2 + 12.5
    for number, line in enumerate(lines):
        look = f'fill="{_QUIET}" font-size="11"' if number else f'fill="{_INK}" font-weight="600"'
        yield f'<text x="{x + 12:g}" y="{first + LINE * number:g}" {look}>{markup(line)}</text>'
    if box.mark:
        yield f'<text x="{x + 4:g}" y="{y - HEAD / 4:g}" fill="{_ACCENT}" font-size="11">{markup(box.mark)}</text>'
    yield "</g>"
