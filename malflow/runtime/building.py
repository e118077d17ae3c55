"""Building the program of a dataflow, to run it or only to inspect it."""

from __future__ import annotations

import re
from collections.abc import Callable

from malflow.engine.plan import Program, compile_graph
from malflow.engine.policies import with_policies
from malflow.graph import Graph
from malflow.streams.stream import KeyedStream, Stream, StreamProvider

__all__ = ["built"]

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
