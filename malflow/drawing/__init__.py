"""Drawings of dataflows: boxes for a terminal, SVG, Mermaid, Graphviz, and coordinates as data. Nothing runs.

It draws a `malflow.graph.Graph` or a program that is compiled of one; `malflow.draw` takes the function that builds it.
"""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

from malflow.checks import check_whole_number
from malflow.drawing.boxes import boxes
from malflow.drawing.formats import compact_document_of, document_of, dot, mermaid
from malflow.drawing.picture import Dataflow, picture_of
from malflow.drawing.svg import svg
from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = ["Dataflow", "Format", "compact_document", "document", "draw"]

Format = Literal["boxes", "mermaid", "dot", "svg", "json"]
"""The formats of drawings."""


def draw(dataflow: Dataflow, format: Format = "boxes", *, stages: bool = False, width: int = 100) -> str:
    """Return a drawing of a dataflow as text, with a line break at its end.

    Args:
        dataflow: a graph, or a program.
        format: ``"boxes"`` for a terminal, ``"mermaid"`` for Markdown, ``"dot"`` for Graphviz, ``"svg"``, or ``"json"``
            for the document that `document` returns.
        stages: whether to show the stages, between which records change workers. The document always has them.
        width: the number of columns of a terminal, for ``"boxes"``. If the boxes need more, a list replaces them.

    Raises:
        GraphError: if there is no such format, or the width is not a positive number.
    """
    if format not in get_args(Format):
        known = ", ".join(map(repr, get_args(Format)))
        raise GraphError(f"draw() has no format {short_repr(format)}; write one of {known}")
    check_whole_number("draw()", "width", width)
    picture = picture_of(dataflow)
    match format:
        case "boxes":
            return boxes(picture, stages=stages, limit=width)
        case "mermaid":
            return mermaid(picture, stages=stages)
        case "dot":
            return dot(picture, stages=stages)
        case "svg":
            return svg(picture, stages=stages)
        case "json":
            return f"{json.dumps(document_of(picture), indent=2)}\n"


def document(dataflow: Dataflow) -> dict[str, Any]:
    """Return a dataflow as dicts, lists, texts and numbers, with the coordinates of a drawing in pixels.

    Its keys are ``malflow`` (the version of the document, 1), ``kind`` (``"graph"``), ``nodes``, ``edges``, ``stages``,
    ``width`` and ``height``. Edges name nodes by ``id``; their ``points`` are from left to right, and their ``form`` is
    ``"columns"`` or, if the reader makes rows of the columns, ``"rows"``; else None. Names and locations
    of nodes are from the program and may contain markup; a ``label`` is printable and short.

    Args:
        dataflow: a graph, or a program.
    """
    return document_of(picture_of(dataflow))


def compact_document(dataflow: Dataflow) -> dict[str, Any]:
    """Return a dataflow as `document` does, with boxes that have room for a name and one line of figures.

    The ``lines`` of a node are its label, in two parts if it is long. There is one more key, ``collapsed``:
    None below 40 operators; otherwise the drawing in which each chain of operators of one stage is one node, with the
    keys ``nodes``, ``edges``, ``stages``, ``width`` and ``height``. The ``members`` of its nodes list the ``id`` of
    each operator.

    Args:
        dataflow: a graph, or a program.
    """
    return compact_document_of(picture_of(dataflow))
