"""Drawings of the dataflow that a function builds."""

from __future__ import annotations

from collections.abc import Callable

from malflow import drawing
from malflow.engine.plan import compile_graph
from malflow.graph import Graph
from malflow.runtime.options import check_build
from malflow.streams.stream import StreamProvider

__all__ = ["draw"]


def draw(
    build_dataflow: Callable[[StreamProvider], object],
    format: drawing.Format = "boxes",
    *,
    stages: bool = False,
    width: int = 100,
) -> str:
    """Return a drawing of a dataflow as text. The dataflow is built and checked, but not run.

    Each operator is a box with its name, its method, the schema version of its states, and the file and line that added
    it. Where an operator has several outputs, arrows have their names, such as ``late``. Records change workers at ║.

    Args:
        build_dataflow: the function that a runtime takes.
        format: ``"boxes"`` for a terminal, ``"mermaid"`` for Markdown, ``"dot"`` for Graphviz, ``"svg"``, or ``"json"``
            with the facts, the coordinates and the stages.
        stages: whether to show the stages, between which records change workers.
        width: the number of columns of a terminal, for ``"boxes"``. If the boxes need more, a list replaces them.

    Raises:
        GraphError: if the dataflow is malformed, there is no such format, or the width is not a positive number.

    >>> from malflow.sinks import VecSink
    >>> from malflow.sources import SingleIteratorSource
    >>> def build_dataflow(provider):
    ...     provider.new_stream().source("numbers", SingleIteratorSource([1])).sink("seen", VecSink())
    >>> draw(build_dataflow, "mermaid").splitlines()[-1]
    '    n0 --> n1'
    """
    check_build(build_dataflow, "draw()")
    graph = Graph()
    build_dataflow(StreamProvider(graph))
    return drawing.draw(compile_graph(graph), format, stages=stages, width=width)
