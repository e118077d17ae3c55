"""Read drawings back: the operators and the edges that somebody sees who looks at one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree as ET

__all__ = ["Seen", "read"]

Seen = tuple[set[str], Counter[tuple[str, str | None, str]]]
"""The names of the operators, and how often each edge is there. Pictures join edges of one output to one operator."""

_SVG = "{http://www.w3.org/2000/svg}"


def read(text: str, format: str) -> Seen:  # noqa: A002 - the argument of `draw`
    """Return the operators and edges of a drawing."""
    match format:
        case "mermaid":
            return _mermaid(text)
        case "dot":
            return _dot(text)
        case "svg":
            return _svg(text)
        case "json":
            return _json(text)
        case _:
            return _boxes(text) if "▼" in text or "╭" in text else _listed(text)


def _mermaid(text: str) -> Seen:
    head, *lines = text.splitlines()
    assert head == "flowchart LR"
    names: dict[str, str] = {}
    arrows: Counter[tuple[str, str | None, str]] = Counter()
    depth = 0
    for line in map(str.strip, lines):
        if node := re.fullmatch(r'(n\d+)(?:\(\[|\{\{|\[\(|\[)"([^"]*)"(?:\]\)|\}\}|\)\]|\])', line):
            names[node[1]] = _decoded(node[2].split("<br/>")[0])
        elif arrow := re.fullmatch(r'(n\d+) [-=]{2}>(?:\|"([^"]*)"\|)? (n\d+)', line):
            label = None if arrow[2] is None else _decoded(arrow[2])
            arrows[names[arrow[1]], label, names[arrow[3]]] += 1
        elif line == "end":
            depth -= 1
        else:
            assert re.fullmatch(r'subgraph s\d+\["stage \d+"\]', line), line
            depth += 1
    assert depth == 0
    return set(names.values()), arrows


def _decoded(text: str) -> str:
    return re.sub(r"#(\d+);", lambda code: chr(int(code[1])), text).removeprefix("║ ")


def _dot(text: str) -> Seen:
    names: dict[str, str] = {}
    arrows: Counter[tuple[str, str | None, str]] = Counter()
    quoted = r'"((?:[^"\\]|\\.)*)"'
    looks = rf"(?: \w+={quoted}| ?\w+=\w+)*"
    depth = 0
    for line in map(str.strip, text.splitlines()):
        if node := re.fullmatch(rf"(n\d+) \[label={quoted}{looks}\]", line):
            label = re.sub(r"\\(.)", lambda it: "\n" if it[1] == "n" else it[1], node[2]).replace("&amp;", "&")
            names[node[1]] = label.split("\n")[0].removeprefix("║ ")
        elif arrow := re.fullmatch(rf"(n\d+) -> (n\d+)(?: \[(?:label={quoted})?(?: ?style=bold)?\])?", line):
            arrows[names[arrow[1]], arrow[3], names[arrow[2]]] += 1
        elif line.endswith("{"):
            depth += 1
        elif line == "}":
            depth -= 1
        else:
            assert line in ("rankdir=LR", "") or line.startswith(("node [", 'label="stage ')), line
    assert depth == 0
    return set(names.values()), arrows


def _json(text: str) -> Seen:
    found = json.loads(text)
    names = {node["id"]: node["name"] for node in found["nodes"]}
    edges = [(names[edge["source"]], edge["label"], names[edge["target"]]) for edge in found["edges"]]
    return set(names.values()), Counter(edges)


def _svg(text: str) -> Seen:
    root = ET.fromstring(text)  # noqa: S314 - our own text
    places = {}
    for group in root.iter(f"{_SVG}g"):
        title, rect = group.find(f"{_SVG}title"), group.find(f"{_SVG}rect")
        assert title is not None
        assert title.text is not None
        assert rect is not None
        places[title.text.splitlines()[0]] = [float(rect.get(it, "")) for it in ("x", "y", "width", "height")]
    arrows: Counter[tuple[str, str | None, str]] = Counter()
    labels = {(float(it.get("x", "")) - 4, float(it.get("y", "")) + 3): it.text for it in root.iter(f"{_SVG}text")}
    for path in root.iter(f"{_SVG}path"):
        numbers = [float(it) for it in re.findall(r"-?[\d.]+", path.get("d", ""))]
        if path.get("fill") == "none":
            start = (numbers[0], numbers[1])
            source = next(n for n, (x, y, w, h) in places.items() if x + w == start[0] and y <= start[1] <= y + h)
        elif path.get("fill"):  # the head of the arrow
            tip, low = numbers[0], numbers[1]
            target = next(n for n, (x, y, _, h) in places.items() if 0 <= x - tip <= 6 and abs(y + h / 2 - low) < 0.1)
            arrows[source, labels.get(start), target] += 1
    return set(places), arrows


def _listed(text: str) -> Seen:
    names: dict[str, str] = {}
    reads: list[tuple[str, str | None, str]] = []
    for line in text.splitlines():
        if line.startswith("stage "):
            continue
        found = re.match(r" *(\d+)  (?:← (.*?))? *  (?:║ )?(n\d+)  ", line)
        assert found, line
        names[found[1]] = found[3]
        for it in (found[2] or "").split(", ") if found[2] else []:
            number, _, label = it.strip().partition(" ")
            reads.append((number, label or None, found[1]))
    return set(names.values()), Counter((names[source], label, names[target]) for source, label, target in reads)


_TURNS = dict(zip("│─┌┐└┘├┤┬┴┼", ["UD", "LR", "RD", "LD", "RU", "LU", "URD", "ULD", "LRD", "LRU", "LRUD"], strict=True))
_STEPS = {"U": (0, -1), "D": (0, 1), "L": (-1, 0), "R": (1, 0)}
_BACK = {"U": "D", "D": "U", "L": "R", "R": "L"}


def _boxes(text: str) -> Seen:
    """Read boxes and follow the lines from their lower borders; lines that cross a vertical one pass it."""
    rows = text.splitlines()
    cells = {(x, y): it for y, row in enumerate(rows) for x, it in enumerate(row)}
    places: dict[str, tuple[int, int, int]] = {}
    for (x, y), it in cells.items():
        if it in "┌╭" and (inside := re.match(r"│ (?:║ )?(n\d+) ", rows[y + 1][x:] if y + 1 < len(rows) else "")):
            end = re.match(r"[┌╭]─+[┐╮]", rows[y][x:])
            if end:
                places[inside[1]] = (x, x + len(end[0]) - 1, y)
    arrows: Counter[tuple[str, str | None, str]] = Counter()
    for name, (left, right, top) in places.items():
        low = next(y for y in range(top, len(rows)) if cells[left, y] in "└╰")
        for x in range(left + 1, right):
            if cells[x, low] == "┬":
                label = _label(cells, x + 1, low)
                for end_x, end_y in set(_followed(cells, x, low + 1)):
                    target = next(n for n, (a, b, y) in places.items() if a < end_x < b and y == end_y + 1)
                    arrows[name, label, target] += 1
    return set(places), arrows


def _label(cells: dict[tuple[int, int], str], x: int, low: int) -> str | None:
    """Return the name of an output, which is next to its line, on the first line below the row of boxes."""
    for y in range(low + 1, low + 9):
        if cells.get((x - 1, y)) != "│":
            return None
        if cells.get((x, y), " ") not in " ┄─":
            text = "".join(cells.get((x + at, y), " ") for at in range(9))
            found = re.match(r"[a-z0-9_]+", text)
            return found[0] if found else None
    return None


def _followed(cells: dict[tuple[int, int], str], x: int, y: int) -> Iterator[tuple[int, int]]:
    """Yield the arrowheads that a line leads to."""
    ways = [(x, y, "D")]
    while ways:
        x, y, way = ways.pop()
        it = cells[x, y]
        if it == "▼":
            yield x, y
            continue
        turns = way if it == "│" and way in "LR" else _TURNS[it].replace(_BACK[way], "")
        ways += [(x + _STEPS[turn][0], y + _STEPS[turn][1], turn) for turn in turns if turn != "U"]
