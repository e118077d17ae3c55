"""Drawings for notebooks: plain text and HTML of the same thing."""

from __future__ import annotations

from malflow.drawing.boxes import boxes
from malflow.drawing.picture import Dataflow, picture_of
from malflow.drawing.svg import svg
from malflow.graph import Port

__all__ = ["picture_bundle"]


def picture_bundle(dataflow: Dataflow, here: Port | None = None) -> dict[str, str]:
    """Return a dataflow as text and as a picture in HTML, by MIME type, with a mark at an output if asked for."""
    picture = picture_of(dataflow, here)
    shows_stages = picture.stages > 1
    figure = svg(picture, stages=shows_stages)
    return {
        "text/plain": boxes(picture, stages=shows_stages),
        "text/html": f'<div style="overflow-x:auto">{figure}</div>',
    }
