"""Pictures as data that becomes JSON, with coordinates."""

from __future__ import annotations

from typing import Any

from malflow.drawing.coordinates import placed
from malflow.drawing.picture import Picture

__all__ = ["document_of"]


def document_of(picture: Picture) -> dict[str, Any]:
    """Return a picture as a document of dicts, lists, texts and numbers; see `malflow.drawing.document`."""
    at = placed(picture)
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
