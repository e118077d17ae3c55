"""Checks of policies for failed records, and reasons why a program can't continue from a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from malflow.errors import GraphError, MalflowError
from malflow.nodes import LETTERS_OUTPUT, Node, SinkNode, SourceNode, StatelessNode, Vertex
from malflow.operators.calls.calling_out import CallingOut

__all__ = [
    "Refuse",
    "calls_out",
    "check_letters",
    "letter_readers",
    "letters_of_letters",
    "letters_taken",
    "no_parking",
    "raised",
    "refusing",
]


def check_letters(vertices: Sequence[Vertex]) -> None:
    """Check the policies of the code."""
    for vertex in letter_readers(vertices):
        if vertex.node.on_error is not None and vertex.node.on_error.may_keep:
            raise letters_of_letters(vertex)
    taken = letters_taken(vertices)
    for vertex in vertices:
        parks = vertex.node.on_error is not None and vertex.node.on_error.fate == "park"
        if parks and (error := no_parking(vertex, taken)) is not None:
            raise error


def calls_out(node: Node) -> bool:
    """Whether an operator makes concurrent calls. These have their own retry."""
    return isinstance(node, StatelessNode) and isinstance(node.logic, CallingOut)


def letter_readers(vertices: Sequence[Vertex]) -> Iterator[Vertex]:
    """Yield the operators downstream of dead letters."""
    reached: set[int] = set()
    for index, vertex in enumerate(vertices):
        if vertex.has_letters or any(port.vertex in reached for port in vertex.inputs):
            reached.add(index)
            yield vertex


def letters_of_letters(vertex: Vertex) -> GraphError:
    """Return the error for an operator that processes dead letters and could create more of them."""
    name = vertex.node.name
    message = f"operator '{name}' processes dead letters, and can only fail or skip; write on_error='fail' or 'skip'"
    return GraphError(message, operator=name, location=vertex.location)


def letters_taken(vertices: Sequence[Vertex]) -> frozenset[str]:
    """Return the operators that have their dead letters read as a stream."""
    ports = (port for vertex in vertices for port in vertex.inputs if port.output == LETTERS_OUTPUT)
    return frozenset(vertices[port.vertex].node.name for port in ports)


def no_parking(vertex: Vertex, taken: Collection[str]) -> GraphError | None:
    """Return the error for an operator that can't have the policy ``"park"``; None if it can.

    Args:
        vertex: the operator.
        taken: the operators that have their dead letters read as a stream.
    """
    name = vertex.node.name
    if isinstance(vertex.node, SourceNode):
        reason = "a source has no keys before its records are read; write on_error='dead_letter'"
    elif isinstance(vertex.node, SinkNode):
        reason = "a sink writes the later records of a key all the same; write on_error='dead_letter'"
    elif vertex.node.placed_by is None:
        reason = (
            "its input is not distributed by .key_distribute(), so the records of a key may be on "
            "several workers; call .key_distribute() before it, or write on_error='dead_letter'"
        )
    elif name in taken:
        reason = (
            "on_dead_letters() takes its letters, so later records of a key could not wait for them; write "
            "on_error='dead_letter', or leave it out of operators="
        )
    else:
        return None
    message = f"operator '{name}' can't have on_error='park': {reason}"
    return GraphError(message, operator=name, location=vertex.location)


Refuse: TypeAlias = Callable[[str, MalflowError], object]
"""A function to call with the name of a state that can't be loaded and the error."""


def raised(_name: str, error: MalflowError) -> None:
    """Raise the error, as a start does.

    Raises:
        MalflowError: always.
    """
    raise error


@contextmanager
def refusing(refuse: Refuse, name: str) -> Iterator[None]:
    """Pass an error in the context to `refuse` instead of raising it."""
    try:
        yield
    except MalflowError as error:
        refuse(name, error)
