"""Operators that were added after a table had rows, which they will not see."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from malflow.engine.plan import Program
from malflow.engine.state_specs import specs_of, state_id
from malflow.nodes import StatefulNode, Vertex
from malflow.states.kinds import StateKind

__all__ = ["Unseen", "unseen_rows"]

_PASSING = (StateKind.FRONTIER, StateKind.EPOCHS)
"""The kinds of states of operators that pass records on as they are."""


class Unseen(NamedTuple):
    """The rows of a table that an operator will not see.

    Attributes:
        operator: the operator, which has no state in the snapshot that a run resumes from.
        table: the operator that keeps the table.
        rows: the number of rows that the table has in the snapshot.
    """

    operator: str
    table: str
    rows: int


def unseen_rows(program: Program, known: Container[str], keys: Mapping[str, int]) -> list[Unseen]:
    """Return the operators without a state that read a table with rows, directly or by operators without a state.

    Args:
        program: the program.
        known: the states in the snapshot.
        keys: the number of keys of each of them.
    """
    return [
        Unseen(consumer, vertex.node.name, keys[vertex.node.name])
        for index, vertex in enumerate(program.vertices)
        if _keeps_table(vertex) and keys.get(vertex.node.name)
        for consumer in dict.fromkeys(_new_readers(program.vertices, index, known))
    ]


def _keeps_table(vertex: Vertex) -> bool:
    """Whether others read the rows of a vertex; a join keeps rows for itself."""
    node = vertex.node
    return isinstance(node, StatefulNode) and node.kind is StateKind.TABLE and node.times is None


def _new_readers(vertices: Sequence[Vertex], table: int, known: Container[str]) -> Iterator[str]:
    """Yield the first operators with a state of their own, on each way from a table, that have none in the snapshot."""
    reached = {table}
    for index, vertex in enumerate(vertices):
        if not any(port.vertex in reached for port in vertex.inputs):
            continue
        own = [spec for spec in specs_of(vertex.node) if spec.name == state_id(vertex.node)]
        if not own or own[0].kind in _PASSING:
            reached.add(index)
        elif own[0].name not in known:
            yield vertex.node.name
