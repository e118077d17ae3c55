"""The states that a program keeps: their names, their kinds, and the partitioners of their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, assert_never

from malflow.engine.plan import Program
from malflow.nodes import (
    EpochsNode,
    ExchangeNode,
    KeyNode,
    Node,
    SinkNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    StatelessNode,
    TimestampsNode,
    UnionNode,
)
from malflow.operators.failures.dead_letters import LETTERS, REFUSED, UNWRITTEN
from malflow.partitioners import PLACEMENT, Partitioner, part_select, rendezvous_select
from malflow.sinks.contract import StatefulSink, StatelessSink
from malflow.states.kinds import Movement, StateKind, StateSpec

__all__ = [
    "DEALT",
    "OldStates",
    "States",
    "hidden_id",
    "keeps_letters",
    "kept_versions",
    "placement_of",
    "specs_of",
    "stages_of_keys",
    "state_id",
    "states_of",
    "stored_once",
]

States = Mapping[Any, Any]
"""One worker's part of a state, by key or, for an operator's own data, by name."""

OldStates = Mapping[str, Mapping[int, States]]
"""The states by key, for each worker that had any, by the state's name."""


DEALT: Final = f"{part_select.__module__}.{part_select.__qualname__}"
"""The name of the placement of parts in snapshots."""


def state_id(node: Node) -> str:
    """Return the name of a node's state: the operator's name, or ``operator/role`` for a hidden state.

    No operator's name contains ``/``, so the names of states are unique.
    """
    return node.name if node.role is None else hidden_id(node, node.role)


def states_of(program: Program) -> tuple[StateSpec, ...]:
    """List the states of a program without duplicates, in the order of its operators."""
    specs = {spec.name: spec for vertex in program.vertices for spec in specs_of(vertex.node)}
    return tuple(specs.values())


def specs_of(node: Node) -> tuple[StateSpec, ...]:
    """Return the declarations of a node's states: its own, then the hidden ones."""
    own = _own_spec(node)
    hidden = node.hidden if isinstance(node, StatefulNode) else ()
    others = [StateSpec(hidden_id(node, role), kind, 1, _placed(node)) for role, kind in hidden]
    if node.on_error is not None:
        by = rendezvous_select if node.placed_by is None else node.placed_by
        roles = (LETTERS, UNWRITTEN, REFUSED) if keeps_letters(node) else (LETTERS,)
        others += [StateSpec(hidden_id(node, role), StateKind.LETTERS, 1, name_of(by)) for role in roles]
    return (*(() if own is None else (own,)), *others)


def keeps_letters(node: Node) -> bool:
    """Whether a node is a sink with a process that keeps letters as well, besides the workers."""
    return isinstance(node, SinkNode) and node.on_error is not None and isinstance(node.sink, StatelessSink)


def kept_versions(program: Program) -> dict[str, int]:
    """Return the versions of the states in snapshots: all except for sources that start over with each run."""
    return {spec.name: spec.version for spec in states_of(program) if spec.name not in program.without_positions}


def stages_of_keys(program: Program) -> dict[str, int]:
    """Return the stage of each state that has keys of records."""
    return {
        spec.name: number
        for number, stage in enumerate(program.stages)
        for step in stage.steps
        for spec in specs_of(program.vertices[step.vertex].node)
        if spec.kind.is_by_key
    }


def stored_once(program: Program) -> frozenset[str]:
    """Return the names of the states that every worker has. Snapshots have the state of worker 0."""
    return frozenset(spec.name for spec in states_of(program) if spec.kind.movement is Movement.EVERYWHERE)


def hidden_id(node: Node, role: str) -> str:
    """Return the name of a hidden state of a node."""
    return f"{node.name}/{role}"


def _own_spec(node: Node) -> StateSpec | None:
    name = state_id(node)
    match node:
        case SourceNode():
            return StateSpec(name, StateKind.SOURCE, 1, DEALT)
        case StatefulNode(kind=kind, version=version, definition=definition, panes=panes, layout=layout):
            return StateSpec(name, kind, version, _placed(node) if kind.is_by_key else None, definition, panes, layout)
        case EpochsNode(layout=layout):
            definition = None if layout is None else layout.definition
            return StateSpec(name, StateKind.EPOCHS, 1, _placed(node), definition, layout=layout)
        case ExchangeNode() | UnionNode():
            return StateSpec(name, StateKind.FRONTIER, 1, None)
        case SinkNode(sink=sink):
            if isinstance(sink, StatefulSink):
                return StateSpec(name, StateKind.SINK, 1, name_of(rendezvous_select))
            has_position = node.is_resumable or node.is_transactional
            return StateSpec(name, StateKind.SINK, 1, None) if has_position else None
        case StatelessNode() | KeyNode() | TimestampsNode() | SplitNode():
            return None
        case _:
            assert_never(node)


def placement_of(node: Node) -> Partitioner | None:
    """Return the partitioner of the keys of a node's state; None without one, or if the state has no keys."""
    return node.placement if isinstance(node, (StatefulNode, EpochsNode)) else None


def name_of(partitioner: Partitioner) -> str:
    """Return a partitioner's name for a snapshot: its module and name, but not its line: it may move.

    >>> name_of(rendezvous_select)
    'malflow.partitioners.rendezvous_select@4'
    """
    if partitioner is rendezvous_select:
        return PLACEMENT
    named = partitioner if hasattr(partitioner, "__qualname__") else type(partitioner)
    return f"{named.__module__}.{named.__qualname__}"


def _placed(node: Node) -> str | None:
    placement = placement_of(node)
    return None if placement is None else name_of(placement)
