"""Which worker holds what: the parts of sources, the state of operators, and how it moves when workers come or go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, assert_never

from malflow.diagnostics import operator_error, shown
from malflow.engine.plan import Program
from malflow.errors import SnapshotError
from malflow.graph import (
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
    Vertex,
)
from malflow.partitioners import Partitioner, index_select, rendezvous_select
from malflow.sinks.contract import StatefulSink, is_resumable
from malflow.state import StateSpec

__all__ = [
    "Feed",
    "Idle",
    "OldStates",
    "Parts",
    "feeds_of",
    "idleness",
    "place_parts",
    "refuse_local",
    "reroute",
    "state_id",
    "states_of",
]

Parts = Mapping[str, Sequence[Sequence[Any]]]
"""The parts of each source that each worker holds."""

OldStates = Mapping[str, Mapping[int, Mapping[Any, Any]]]
"""The states by key, for each worker that held any, by the state's name."""

States = Mapping[Any, Any]
"""What one worker holds of one state: by key, or, of an operator's own, by the name of what it is."""

_OURS: Sequence[Partitioner] = (rendezvous_select, index_select)


# Names


def state_id(node: Node) -> str:
    """Name the state of a node: no two of a program have one name; a user's has no line break in it."""
    if isinstance(node, ExchangeNode):
        return f"{node.name}-distribute"
    return f"\n{node.name}" if isinstance(node, UnionNode) else node.name


def states_of(program: Program) -> tuple[StateSpec, ...]:
    """List what a program keeps: every state once, in the order of its operators."""
    specs = {state_id(vertex.node): spec for vertex in program.vertices if (spec := _spec(vertex.node)) is not None}
    return tuple(specs.values())


def _spec(node: Node) -> StateSpec | None:
    name = state_id(node)
    match node:
        case SourceNode():
            return StateSpec(name, "source", 1, name_of(rendezvous_select))
        case StatefulNode(placement=placement):
            return StateSpec(name, node.kind, node.version, None if placement is None else name_of(placement))
        case EpochsNode(placement=placement):
            return StateSpec(name, "epochs", 1, None if placement is None else name_of(placement))
        case ExchangeNode() | UnionNode():
            return StateSpec(name, "frontier", 1, None)
        case SinkNode(sink=sink):
            if isinstance(sink, StatefulSink):
                return StateSpec(name, "sink", 1, name_of(rendezvous_select))
            return StateSpec(name, "sink", 1, None) if is_resumable(sink.impl) else None
        case StatelessNode() | KeyNode() | TimestampsNode() | SplitNode():
            return None
        case _:
            assert_never(node)


def name_of(partitioner: Partitioner) -> str:
    """Name a partitioner for a snapshot: by module and name, without place, so that a moved file is no change.

    >>> name_of(rendezvous_select)
    'malflow.partitioners.rendezvous_select'
    """
    named = partitioner if hasattr(partitioner, "__qualname__") else type(partitioner)
    return f"{named.__module__}.{named.__qualname__}"


# Parts


def place_parts(parts: Mapping[str, Iterable[Any]], workers: Sequence[int]) -> dict[str, list[list[Any]]]:
    """Share out the parts of each source among the workers."""
    placed: dict[str, list[list[Any]]] = {}
    for name, listed in parts.items():
        placed[name] = [[] for _ in workers]
        for part in listed:
            placed[name][rendezvous_select(part, workers)].append(part)
    return placed


# Idle edges


class Idle(IntEnum):
    """Whether records may come along an edge; an edge from which none come holds no epoch back."""

    BUSY = 0
    ENDED = 1
    EMPTY = 2


@dataclass(frozen=True, slots=True)
class Feed:
    """The sources upstream of an edge.

    Attributes:
        local: those whose records come from the same worker.
        remote: those whose records may come from any worker, for there is an exchange between.
    """

    local: frozenset[str] = frozenset()
    remote: frozenset[str] = frozenset()


def feeds_of(program: Program) -> list[tuple[Feed, ...]]:
    """Tell for each vertex what feeds each of its inputs."""
    feeds: list[tuple[Feed, ...]] = []
    given: list[Feed] = []
    for vertex in program.vertices:
        inputs = tuple(given[port.vertex] for port in vertex.inputs)
        local = frozenset().union(*(feed.local for feed in inputs))
        remote = frozenset().union(*(feed.remote for feed in inputs))
        if isinstance(vertex.node, SourceNode):
            local = frozenset({vertex.node.name})
        if isinstance(vertex.node, ExchangeNode):
            local, remote = frozenset(), local | remote
        feeds.append(inputs)
        given.append(Feed(local, remote))
    return feeds


def idleness(feed: Feed, worker: int, parts: Parts, ended: Collection[str]) -> Idle:
    """Tell how idle an edge is.

    Args:
        feed: the sources upstream of it.
        worker: the worker that it begins at.
        parts: the parts of each source on each worker.
        ended: the sources that have no unfinished part on any worker.
    """
    near = [name for name in feed.local if parts[name][worker]]
    if not near and not feed.remote:
        return Idle.EMPTY
    return Idle.ENDED if feed.remote.union(near).issubset(ended) else Idle.BUSY


# State


def refuse_local(program: Program) -> None:
    """Refuse to move the state of a program in which nothing tells where a key belongs.

    Raises:
        SnapshotError: naming an operator whose keys were set by ``key_local``.
    """
    for vertex in program.vertices:
        if isinstance(vertex.node, StatefulNode) and vertex.node.placement is None:
            raise _local(vertex.node)


def _local(node: StatefulNode) -> SnapshotError:
    return SnapshotError(
        f"operator '{node.name}' keeps the state of a key where the key comes up, by .key_local(), so nothing tells to "
        "which of the workers its state belongs now; keep the number of workers and the way it is keyed, or key the "
        "stream with .key_distribute()"
    )


def reroute(
    program: Program,
    states: OldStates,
    before: int,
    after: int,
    *,
    placements: Mapping[str, str | None] | None = None,
) -> dict[str, list[States]]:
    """Bring states from `before` workers to `after` workers: for each name, the states of each new worker.

    Keys go where their partitioner sends them, parts where the parts of sources and sinks go. All new workers begin
    at the least epoch that the old ones had reached, those left aside to which no records came; so the epochs of a
    whole stream never go back, while those of one worker may. What an old worker had reached beyond that goes with
    the keys that it had, so that a record that was late there is late still.

    Args:
        program: the program that goes on; states of which it knows nothing are left out.
        states: what the old workers held.
        before: how many old workers there were.
        after: how many new ones there are.
        placements: how the keys of each state were put on the old workers, as `states_of` tells it; by default as
            in `program`.

    Raises:
        SnapshotError: if nothing tells where a key belongs, or two workers hold a state for one key.
        OperatorError: if a partitioner fails, or answers what is no worker.
    """
    moved: dict[str, list[States]] = {}
    for vertex in program.vertices:
        name = state_id(vertex.node)
        spec = _spec(vertex.node)
        if spec is not None and name in states and name not in moved:
            same = before == after and (placements is None or placements.get(name) == spec.placement)
            old = [states[name].get(worker, {}) for worker in range(before)]
            if isinstance(vertex.node, EpochsNode):
                was = spec.placement if placements is None else placements.get(name)
                moved[name] = _epochs(vertex.node, old, after, known=was in (None, spec.placement))
            else:
                moved[name] = _reroute(vertex, old, after, same=same)
    return moved


def _reroute(vertex: Vertex, old: list[States], after: int, *, same: bool) -> list[States]:
    node = vertex.node
    match node:
        case StatefulNode(placement=placement):
            if len(old) == after == 1:
                return old
            if placement is None and not same:
                raise _local(node)
            return (
                old if placement is None or (same and placement in _OURS) else _by_key(node.name, old, after, placement)
            )
        case SourceNode() | SinkNode():
            return old if len(old) == after else _by_key(node.name, old, after, rendezvous_select)
        case ExchangeNode():
            return old if len(old) == after else _exchange(old, after)
        case UnionNode():
            return old if len(old) == after else _union(old, after, len(vertex.inputs))
        case StatelessNode() | KeyNode() | TimestampsNode() | SplitNode() | EpochsNode():
            return []
        case _:
            assert_never(node)


def _by_key(name: str, old: Sequence[States], after: int, partitioner: Partitioner) -> list[States]:
    new: list[dict[Any, Any]] = [{} for _ in range(after)]
    for states in old:
        for key, state in states.items():
            held = new[_worker_of(name, key, after, partitioner)]
            if key in held:
                raise SnapshotError(
                    f"operator '{name}' has two states for key {shown(key)}, on two workers: they were kept under "
                    ".key_local() and can't be made one; leave the operator as it was, or give it another name"
                )
            held[key] = state
    return list(new)


def _worker_of(name: str, key: Any, after: int, partitioner: Partitioner) -> int:
    workers, about = range(after), f"key {shown(key)}"
    try:
        worker = partitioner(key, workers)
    except Exception as error:
        raise operator_error(name, error, None, partitioner, about=about) from error
    if worker not in workers:
        reason = f"the partitioner answered {shown(worker)}; it must answer one of {list(workers)}"
        raise operator_error(name, reason, None, partitioner, about=about)
    return worker


_Reached = tuple[int, Any]
"""How idle an edge or a worker was, and the epoch it had reached; None where it had reached none."""


def _least(reached: Iterable[_Reached]) -> Any:
    """Give the epoch that all but the idle ones have reached, or None; where all are idle, the least idle ones."""
    known = list(reached)
    busiest = min(idle for idle, _ in known)
    epochs = [epoch for idle, epoch in known if idle == busiest]
    return None if None in epochs else min(epochs)


def _epochs(node: EpochsNode, old: list[States], after: int, *, known: bool) -> list[States]:
    """Begin all workers at the least epoch; where their number is the same, only those that never had a part.

    Where it is not `known` which worker had a key, since another partitioner had put it there, what any of them had
    reached counts for each key: some records are late then that would not be, but none is on time that would be late.
    """
    reached = [(states.get("idle", Idle.BUSY), states.get("epoch")) for states in old]
    least = _least(reached)
    if len(old) == after and known:
        return [
            _state({**states, "epoch": least}) if idle == Idle.EMPTY and epoch != least else states
            for states, (idle, epoch) in zip(old, reached, strict=True)
        ]
    past = None if node.placement is None else _past(old, least)
    if past is not None and not known:
        past = ((1, {0: max(epoch for _, epochs in past for epoch in epochs.values())}),)
    by_part = [{key: epoch for key, epoch in states.items() if isinstance(key, tuple)} for states in old]
    return [
        {**_state({"epoch": least, "past": past}), **parts}
        for parts in _by_key(node.name, by_part, after, lambda key, workers: rendezvous_select(key[1], workers))
    ]


def _past(old: list[States], least: Any) -> Any:
    """Collect what the old workers had reached beyond the least epoch, and those before them: see `Floors`."""
    epochs = {worker: states["epoch"] for worker, states in enumerate(old) if "epoch" in states}
    past = [(len(old), epochs)]
    for states in old:
        past.extend(entry for entry in states.get("past", ()) if entry not in past)
    return tuple(entry for entry in past if any(least is None or epoch > least for epoch in entry[1].values())) or None


def _exchange(old: list[States], after: int) -> list[States]:
    """Let each new upstream worker begin where the whole stream is."""
    merged = _least((Idle.BUSY, states.get("merged")) for states in old)
    return [_state({**dict.fromkeys(range(after), merged), "merged": merged})] * after


def _union(old: list[States], after: int, edges: int) -> list[States]:
    idle = [states.get("idle", (Idle.BUSY,) * edges) for states in old]
    least = {
        edge: _least((at[edge], states.get(edge)) for at, states in zip(idle, old, strict=True))
        for edge in range(edges)
    }
    merged = _least((min(at), states.get("merged")) for at, states in zip(idle, old, strict=True))
    return [_state({**least, "merged": merged})] * after


def _state(states: States) -> States:
    return {key: state for key, state in states.items() if state is not None}
