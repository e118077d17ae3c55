"""Pictures as data that becomes JSON, with coordinates."""

from __future__ import annotations

from typing import Any

from malflow.drawing.chains import collapsed
from malflow.drawing.coordinates import COMPACT, Placed, name_lines, placed
from malflow.drawing.picture import Picture
from malflow.drawing.text import fitted

__all__ = ["compact_document_of", "document_of"]

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
    return {**whole, "collapsed": _collapsed(picture) if len(picture.boxes) >= _MANY else None}


def _collapsed(picture: Picture) -> dict[str, Any]:
    short, members = collapsed(picture)
    drawn = _document(short, placed(short, COMPACT))
    drawn["nodes"] = [
        {
            **{key: node[key] for key in ("id", "kind", "stage", "exchange", "x", "y", "width", "height")},
            **_label_of(node["name"]),
            "members": list(group),
        }
        for node, group in zip(drawn["nodes"], members, strict=True)
    ]
    return {key: drawn[key] for key in ("nodes", "edges", "stages", "width", "height")}


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
