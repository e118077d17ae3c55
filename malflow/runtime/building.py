"""Build the program of a dataflow, to run it, to inspect it or to draw it."""

from __future__ import annotations

import re
from collections.abc import Callable

from malflow import drawing
from malflow.engine.compiler import compile_graph, with_policies
from malflow.engine.plan import Program
from malflow.graph import Graph
from malflow.runtime.options import check_build
from malflow.streams.stream import KeyedStream, Stream, StreamProvider

__all__ = [
    "built",
    "draw",
]

_OF_NONE = re.compile(r"'NoneType' object has no attribute '(\w+)'")
_WITHOUT_NAME = re.compile(r"Stream\.(\w+)\(\) missing 1 required positional argument")


def built(build_dataflow: Callable[[StreamProvider], object]) -> Program:
    """Return the program of a dataflow, with the policies of its configuration.

    Args:
        build_dataflow: builds the dataflow.

    Raises:
        GraphError: if it is malformed.
    """
    graph = Graph()
    try:
        build_dataflow(StreamProvider(graph))
    except (AttributeError, TypeError) as error:
        _explain(error)
        raise
    program = compile_graph(graph)
    if graph.policies or graph.retries or graph.default_policy is not None:
        program = with_policies(program, graph.policies, graph.default_policy, graph.retries)
    return program


def _explain(error: Exception) -> None:
    """Add a note to an error of Python that a common mistake causes."""
    method = _OF_NONE.search(str(error))
    if method is not None and (hasattr(Stream, method[1]) or hasattr(KeyedStream, method[1])):
        error.add_note(
            f".sink() ends a stream and returns None; call .{method[1]}() before it, or keep the stream in a name"
        )
    method = _WITHOUT_NAME.search(str(error))
    if method is not None:
        error.add_note(f'each operator has a name, which comes first: .{method[1]}("name", ...)')


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
