"""Draws the pictures of the pages on time and state: ``python docs/pictures/draw.py``."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from math import hypot
from pathlib import Path

from malflow.partitioners import SLOTS, slot_of, slot_owners, stable_hash

__all__ = ["PICTURES", "draw"]

ARRIVED = (1, 4, 3, 7, 5, 11, 6, 10, 13)
"""The timestamps of the records, in the order in which they arrive."""

BOUND = 3
"""How far out of order records may be."""

VISITS = (1, 4, 7, 13, 15, 24)
"""The timestamps of the records that are divided into windows."""

TOTALS = {"tea": 350, "shoes": 90, "books": 2000}
"""The states of an operator by key."""

WORKERS, RESTARTED = 3, 2
"""The number of workers of a run, and of the run that continues from its snapshot."""

TEXT, RECORD, LATE, EPOCH, WINDOW, EDGE = "#1a202c", "#2b6cb0", "#c53030", "#975a16", "#ebf4ff", "#90b4d8"


def draw() -> dict[str, str]:
    """Return the pictures by the names of their files."""
    return {f"{name}.svg": picture() for name, picture in PICTURES.items()}


def epochs() -> str:
    """Draw records in order of arrival, with the epochs between them and the late record apart."""
    shapes = [_text(20, 62, "on time"), _text(20, 142, "late", color=LATE)]
    x = 120
    epoch: int | None = None
    for timestamp in ARRIVED:
        is_late = epoch is not None and timestamp <= epoch
        shapes += _record(x, 137 if is_late else 57, timestamp, LATE if is_late else RECORD)
        x += 34
        if epoch is None or timestamp - BOUND > epoch:
            epoch = timestamp - BOUND
            shapes += [_line(x, 34, x, 92, EPOCH, dashed=True), _text(x, 24, f"{epoch}", color=EPOCH, middle=True)]
            x += 34
    shapes.append(_text(20, 24, "epoch", color=EPOCH))
    shapes += [_line(100, 110, x, 110, TEXT), _text(x + 6, 114, "order of arrival")]
    return _svg(x + 110, 165, shapes)


def windows() -> str:
    """Draw the windows of each kind that records belong to, along event time."""
    left, scale = 160, 18

    def at(timestamp: float) -> float:
        return left + scale * (timestamp + 5)

    shapes = [_text(20, 40, "records of one key")]
    for timestamp in VISITS:
        shapes += _record(at(timestamp), 36, timestamp, RECORD)
    rows = {
        "tumbling(10)": [[(0, 10), (10, 20), (20, 30)]],
        "sliding(10, 5)": [[(-5, 5), (5, 15), (15, 25)], [(0, 10), (10, 20), (20, 30)]],
        "session(5)": [_sessions(5)],
    }
    y = 66
    for name, lanes in rows.items():
        shapes.append(_text(20, y + 14 * len(lanes) + 3, name))
        for lane in lanes:
            for start, end in lane:
                shapes += [
                    _box(at(start), y, at(end) - at(start), 24),
                    _text(at((start + end) / 2), y + 16, _bounds(start, end), middle=True),
                ]
            y += 28
        y += 16
    shapes.append(_line(at(-5), y, at(30), y, TEXT))
    for timestamp in range(-5, 31, 5):
        shapes += [
            _line(at(timestamp), y, at(timestamp), y + 5, TEXT),
            _text(at(timestamp), y + 19, f"{timestamp}", middle=True),
        ]
    shapes.append(_text(20, y + 19, "event time"))
    return _svg(at(30) + 30, y + 34, shapes)


def lateness() -> str:
    """Draw event time over order of arrival: the epoch as steps, and on which side of them each record lies."""
    bottom, step, scale = 290, 58, 18

    def x(order: float) -> float:
        return 90 + step * order

    def y(timestamp: float) -> float:
        return bottom - scale * timestamp

    right = x(len(ARRIVED))
    shapes = [_box(x(0), y(10), right - x(0), y(0) - y(10)), _text(right + 8, y(5), "window [0, 10)")]
    shapes += [_line(x(0), y(0), right, y(0), TEXT), _line(x(0), y(0), x(0), y(14), TEXT)]
    shapes += [_text(right + 8, y(0) + 4, "order of arrival"), _text(20, y(14) - 10, "event time")]
    shapes += [_text(x(0) - 10, y(number) + 4, f"{number}", end=True) for number in (0, 5, 10)]
    epoch = ARRIVED[0] - BOUND
    for order, timestamp in enumerate(ARRIVED):
        is_late = order > 0 and timestamp <= epoch
        shapes += _record(x(order + 0.5), y(timestamp), timestamp, LATE if is_late else RECORD)
        before, epoch = epoch, max(epoch, timestamp - BOUND)
        if order and before >= 0:
            shapes.append(_line(x(order), y(before), x(order + 1), y(before), EPOCH, dashed=True))
        if order and epoch != before:
            shapes.append(_line(x(order + 1), y(max(before, 0)), x(order + 1), y(epoch), EPOCH, dashed=True))
    shapes.append(_text(right + 8, y(epoch) + 4, f"epoch {epoch}: the window closes", color=EPOCH))
    return _svg(right + 230, bottom + 30, shapes)


def state() -> str:
    """Draw the way of a key to its worker, to a section of a data file, and to its worker after a restart."""
    left, right = 180, 780
    followed = list(TOTALS)[-1]
    slot = slot_of(followed)
    owner = slot_owners(WORKERS)[slot]
    shapes = [_text(20, y, text) for y, text in _labels((52, 134, 234, 334))]

    def row(y: float, count: int, titles: str, held: list[list[str]]) -> list[float]:
        width = (right - left - 20 * (count - 1)) / count
        middles = [left + (width + 20) * number + width / 2 for number in range(count)]
        for number, middle in enumerate(middles):
            shapes.append(_box(middle - width / 2, y, width, 50))
            shapes.append(_text(middle, y + 20, f"{titles}{number}", middle=True))
            color = RECORD if followed in held[number] else TEXT
            shapes.append(_text(middle, y + 39, _states(held[number]), color=color, middle=True))
        return middles

    running, restored = _held(WORKERS), _held(RESTARTED)
    above = row(110, WORKERS, "worker ", running)
    for number, middle in enumerate(above):
        shapes += _arrow(middle, 160, middle, 210, RECORD if number == owner else TEXT)
    row(210, WORKERS, "'total', worker ", running)
    below = row(310, RESTARTED, "worker ", restored)
    for key in TOTALS:
        before, after = (slot_owners(workers)[slot_of(key)] for workers in (WORKERS, RESTARTED))
        aim = below[after] + 60 * (before - after - 0.5)
        shapes += _arrow(above[before], 260, aim, 310, RECORD if key == followed else TEXT)
    way = [
        ("key", repr(followed), 80),
        ("stable hash", f"{stable_hash(followed):#x}", 160),
        (f"slot of {SLOTS:,}", f"{slot:,}", 90),
        (f"worker of {WORKERS}", f"{owner}", 80),
    ]
    x: float = left
    for number, (title, value, width) in enumerate(way):
        shapes.append(_text(x + width / 2, 22, title, middle=True))
        shapes += [_box(x, 32, width, 28), _text(x + width / 2, 51, value, color=RECORD, middle=True)]
        if number < len(way) - 1:
            shapes += _arrow(x + width, 46, x + width + 50, 46, RECORD)
            x += width + 50
    shapes += _arrow(above[owner], 60, above[owner], 110, RECORD)
    return _svg(right + 20, 380, shapes)


PICTURES = {"epochs": epochs, "windows": windows, "lateness": lateness, "state": state}
"""The functions that draw the pictures, by name."""


def _sessions(gap: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for timestamp in VISITS:
        if found and timestamp < found[-1][1]:
            found[-1] = (found[-1][0], timestamp + gap)
        else:
            found.append((timestamp, timestamp + gap))
    return found


def _labels(tops: Iterable[float]) -> Iterable[tuple[float, str]]:
    """Yield the lines of text beside the rows of the picture of a key's way."""
    texts = ("of a record,", "or a question"), ("in memory of", "the workers"), ("sections of", "a data file")
    for top, lines in zip(tops, (*texts, ("after a restart", f"with {RESTARTED} workers")), strict=True):
        yield from zip((top - 3, top + 14), lines, strict=True)


def _held(workers: int) -> list[list[str]]:
    """Return the keys that each of some workers has."""
    return [[key for key in TOTALS if slot_owners(workers)[slot_of(key)] == number] for number in range(workers)]


def _states(keys: Iterable[str]) -> str:
    return ", ".join(f"{key!r}: {TOTALS[key]}" for key in keys)


def _bounds(start: int, end: int) -> str:
    return f"[{start}, {end})"


def _record(x: float, y: float, timestamp: int, color: str) -> list[str]:
    """Return a circle with a timestamp in it."""
    circle = f'<circle cx="{x:g}" cy="{y:g}" r="13" fill="{color}"/>'
    return [circle, _text(x, y + 4, f"{timestamp}", color="#ffffff", middle=True)]


def _text(x: float, y: float, text: str, *, color: str = TEXT, middle: bool = False, end: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ' text-anchor="end"' if end else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{color}"{anchor}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, color: str, *, dashed: bool = False) -> str:
    style = ' stroke-width="2" stroke-dasharray="5 3"' if dashed else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}"{style}/>'


def _arrow(x1: float, y1: float, x2: float, y2: float, color: str) -> list[str]:
    """Return a line with a head at its end."""
    length = hypot(x2 - x1, y2 - y1)
    along, across = (x2 - x1) / length, (y2 - y1) / length
    x, y = x2 - 9 * along, y2 - 9 * across
    corners = ((x2, y2), (x - 4 * across, y + 4 * along), (x + 4 * across, y - 4 * along))
    head = " ".join(f"{corner_x:.1f},{corner_y:.1f}" for corner_x, corner_y in corners)
    return [_line(x1, y1, round(x, 1), round(y, 1), color), f'<polygon points="{head}" fill="{color}"/>']


def _box(x: float, y: float, width: float, height: float) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{WINDOW}" stroke="{EDGE}"/>'


def _svg(width: float, height: float, shapes: Iterable[str]) -> str:
    """Return the shapes as a picture on white ground."""
    size = f'width="{width:g}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    return "\n".join([head, f'<rect {size} fill="#ffffff"/>', *shapes, "</svg>", ""])


if __name__ == "__main__":
    for name, picture in draw().items():
        (Path(__file__).parent / name).write_text(picture, encoding="utf-8")
