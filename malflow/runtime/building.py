"""Building the program of a dataflow, to run it or only to inspect it."""

from __future__ import annotations

from collections.abc import Callable

from malflow.engine.plan import Program, compile_graph
from malflow.engine.policies import with_policies
from malflow.graph import Graph
from malflow.streams.stream import StreamProvider

__all__ = ["built"]


def built(build_dataflow: Callable[[StreamProvider], object]) -> Program:
    """Return the program of a dataflow, with the policies of its configuration.

    Args:
        build_dataflow: builds the dataflow.

    Raises:
        GraphError: if it is malformed.
    """
    graph = Graph()
    build_dataflow(StreamProvider(graph))
    program = compile_graph(graph)
    if graph.policies or graph.retries or graph.default_policy is not None:
        program = with_policies(program, graph.policies, graph.default_policy, graph.retries)
    return program
