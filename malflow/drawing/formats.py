"""Pictures for other programs: Mermaid, Graphviz, and documents of JSON with coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from malflow.drawing.chains import collapsed
from malflow.drawing.coordinates import COMPACT, Placed, name_lines, placed
from malflow.drawing.picture import Box, Picture
from malflow.drawing.text import fitted

__all__ = [
    "compact_document_of",
    "document_of",
    "dot",
    "mermaid",
]

_PLAIN = frozenset(" _,/=")
_SHAPES = {"source": '(["{}"])', "sink": '(["{}"])', "split": '{{{{"{}"}}}}', "cloned": '{{{{"{}"}}}}'}


def mermaid(picture: Picture, *, stages: bool = False) -> str:
    """Return a picture as a flowchart of Mermaid; thick arrows are where records change workers.

    Args:
        picture: the picture.
        stages: whether to show the stages, as subgraphs.
    """
    return "\n".join(["flowchart LR", *_mermaid_nodes(picture, stages=stages), *_mermaid_arrows(picture)]) + "\n"


def _mermaid_nodes(picture: Picture, *, stages: bool) -> Iterator[str]:
    if not stages:
        yield from (f"    {_mermaid_node(index, box)}" for index, box in enumerate(picture.boxes))
        return
    for stage in range(picture.stages):
        yield f'    subgraph s{stage}["stage {stage}"]'
        yield from (
            f"        {_mermaid_node(index, box)}" for index, box in enumerate(picture.boxes) if box.stage == stage
        )
        yield "    end"


def _mermaid_node(index: int, box: Box) -> str:
    shape = _SHAPES.get(box.kind, '[("{}")]' if box.version is not None else '["{}"]')
    return f"n{index}{shape.format('<br/>'.join(map(_text, box.lines())))}"


def _mermaid_arrows(picture: Picture) -> Iterator[str]:
    for arrow in picture.arrows:
        line = "==>" if picture.boxes[arrow.target].exchange else "-->"
        label = "" if arrow.text is None else f'|"{_text(arrow.text)}"|'
        yield f"    n{arrow.source} {line}{label} n{arrow.target}"


def _text(text: str) -> str:
    """Return a text for a label, in which anything but letters, digits and blanks is a code of its character.

    >>> _text('a "b"')
    'a #34;b#34;'
    """
    return "".join(it if it.isalnum() or it in _PLAIN else f"#{ord(it)};" for it in text)


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})


def dot(picture: Picture, *, stages: bool = False) -> str:
    """Return a picture as a graph of Graphviz; bold arrows are where records change workers.

    Args:
        picture: the picture.
        stages: whether to show the stages, as clusters.
    """
    head = ["digraph dataflow {", "    rankdir=LR", '    node [shape=box fontname="Helvetica" fontsize=11]']
    return "\n".join([*head, *_dot_nodes(picture, stages=stages), *_dot_arrows(picture), "}"]) + "\n"


def _dot_nodes(picture: Picture, *, stages: bool) -> Iterator[str]:
    if not stages:
        yield from (f"    {_dot_node(index, box)}" for index, box in enumerate(picture.boxes))
        return
    for stage in range(picture.stages):
        yield f"    subgraph cluster_{stage} {{"
        yield f'        label="stage {stage}"'
        yield from (f"        {_dot_node(index, box)}" for index, box in enumerate(picture.boxes) if box.stage == stage)
        yield "    }"


def _dot_node(index: int, box: Box) -> str:
    label = "\\n".join(line.translate(_ESCAPES) for line in box.lines())
    styles = [*(["rounded"] if box.kind in ("source", "sink") else []), *(["filled"] if box.state else [])]
    look = f' style="{chr(44).join(styles)}" fillcolor="#e9f0f7"' if styles else ""
    return f'n{index} [label="{label}"{look}]'


def _dot_arrows(picture: Picture) -> Iterator[str]:
    for arrow in picture.arrows:
        label = [] if arrow.text is None else [f'label="{arrow.text.translate(_ESCAPES)}"']
        looks = [*label, *(["style=bold"] if picture.boxes[arrow.target].exchange else [])]
        look = f" [{' '.join(looks)}]" if looks else ""
        yield f"    n{arrow.source} -> n{arrow.target}{look}"


_MANY = 40
"""The number of boxes from which a compact document also draws each chain as one box."""


def document_of(picture: Picture) -> dict[str, Any]:
    """Return a picture as a document of dicts, lists, texts and numbers; see `malflow.drawing.document`."""
    return _document(picture, placed(picture))


def compact_document_of(picture: Picture) -> dict[str, Any]:
    """Return a picture as a document with small boxes; see `malflow.drawing.compact_document`."""
    whole = _document(picture, placed(picture, COMPACT))
    for node in whole["nodes"]:
        node.update(_label_of(node["name"]))
    _label_edges(whole, picture)
    return {**whole, "collapsed": _collapsed(picture) if len(picture.boxes) >= _MANY else None}


def _collapsed(picture: Picture) -> dict[str, Any]:
    short, members = collapsed(picture)
    drawn = _document(short, placed(short, COMPACT))
    _label_edges(drawn, short)
    drawn["nodes"] = [
        {
            **{key: node[key] for key in ("id", "kind", "stage", "exchange", "x", "y", "width", "height")},
            **_label_of(node["name"]),
            "members": list(group),
        }
        for node, group in zip(drawn["nodes"], members, strict=True)
    ]
    return {key: drawn[key] for key in ("nodes", "edges", "stages", "width", "height")}


def _label_edges(drawn: dict[str, Any], picture: Picture) -> None:
    """Put the forms of columns into the labels of the edges."""
    for edge, arrow in zip(drawn["edges"], picture.arrows, strict=True):
        edge["label"] = arrow.text


def _label_of(name: str) -> dict[str, Any]:
    return {"label": fitted(name, COMPACT.limit), "lines": name_lines(name, COMPACT)}


def _document(picture: Picture, at: Placed) -> dict[str, Any]:
    nodes = [
        {
            "id": index,
            "name": box.name,
            "label": box.label,
            "kind": box.kind,
            "implementation": box.implementation,
            "location": box.location,
            "state": box.state,
            "version": box.version,
            "stage": box.stage,
            "exchange": box.exchange,
            "outputs": list(box.outputs),
            "unread": list(box.unread),
            "x": place.x,
            "y": place.y,
            "width": place.width,
            "height": place.height,
        }
        for index, (box, place) in enumerate(zip(picture.boxes, at.boxes, strict=True))
    ]
    edges = [
        {
            "source": arrow.source,
            "output": arrow.output,
            "target": arrow.target,
            "input": arrow.input,
            "label": arrow.label,
            "form": arrow.form,
            "points": [list(point) for point in points],
        }
        for arrow, points in zip(picture.arrows, at.points, strict=True)
    ]
    stages = [{"number": band.stage, "x": band.x, "width": band.width} for band in at.bands]
    return {
        "malflow": 1,
        "kind": "graph",
        "nodes": nodes,
        "edges": edges,
        "stages": stages,
        "width": at.width,
        "height": at.height,
    }
