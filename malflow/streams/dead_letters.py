"""The stream of dead letters: a union of outputs of the operators that make them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from malflow.errors import GraphError
from malflow.graph import Graph
from malflow.nodes import LETTERS_OUTPUT, Port, SinkNode, UnionNode
from malflow.words import did_you_mean

__all__ = ["add_letters"]


def add_letters(graph: Graph, operators: Sequence[str] | None, location: str | None) -> Port:
    """Add the union of the dead letters of operators to a graph, and return its output.

    Args:
        graph: the graph.
        operators: the names of the operators; None for those with a policy that may keep letters.
        location: the user's line.

    Raises:
        GraphError: if there are no such operators, or one of them can't make dead letters.
    """
    if isinstance(operators, str):
        raise GraphError("on_dead_letters() takes a list of operators; got a string", location=location)
    ports = list(_default(graph) if operators is None else _of_operators(graph, operators, location))
    if not ports:
        message = "on_dead_letters() finds no operator with on_error='dead_letter'; set it on one, or name operators"
        raise GraphError(message, location=location)
    name = f"(letters of {', '.join(graph.vertices[port.vertex].node.name for port in ports)})"
    graph.share(name, location)
    return graph.add(UnionNode(name), ports, location)


def _default(graph: Graph) -> Iterator[Port]:
    for index, vertex in enumerate(graph.vertices):
        policy = vertex.node.on_error
        is_sink = isinstance(vertex.node, SinkNode)
        if policy is not None and policy.may_keep and policy.fate != "park" and not is_sink:
            yield Port(index, LETTERS_OUTPUT)


def _of_operators(graph: Graph, operators: Sequence[str], location: str | None) -> Iterator[Port]:
    nodes = [(at, vertex.node) for at, vertex in enumerate(graph.vertices) if not isinstance(vertex.node, SinkNode)]
    guarded = {node.name: at for at, node in nodes if node.on_error is not None}
    for name in operators:
        if name not in guarded:
            known = any(vertex.node.name == name for vertex in graph.vertices)
            hint = did_you_mean(name, guarded, else_="name operators with a function of the record")
            is_sink = any(it.node.name == name and isinstance(it.node, SinkNode) for it in graph.vertices)
            reason = "makes no dead letters" if known else "is not in the dataflow"
            if is_sink:
                reason = "is a sink, whose dead letters stay in snapshots"
                hint = "; list and replay them: malflow errors"
            message = f"on_dead_letters() names operator {name!r}, which {reason}{hint}"
            raise GraphError(message, operator=f"{name}", location=location)
        yield Port(guarded[name], LETTERS_OUTPUT)
