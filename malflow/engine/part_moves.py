"""The move of parts of sources from a worker to another, between two ticks: only what belongs to them moves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from malflow.engine.parts.places import Held, PartMove, PartPlaces, Parts, Redeal, held_parts, near
from malflow.engine.plan import Program
from malflow.engine.state_specs import States, placement_of, specs_of
from malflow.engine.states.rescale import key_of_entry, reroute
from malflow.engine.worker_states import WorkerStates
from malflow.engine.workers import Workers
from malflow.nodes import EpochsNode, ExchangeNode, SourceNode, Vertex
from malflow.partitioners import part_select
from malflow.states.keyed import Delta
from malflow.states.kinds import Movement, StateSpec

__all__ = [
    "Given",
    "Times",
    "entries_of",
    "give",
    "move_parts",
    "moved_times",
    "redeal_of",
    "take",
    "times_of",
]

Times = Mapping[str, Mapping[int, States]]
"""The epochs (watermarks) of operators near a source, by the state's name and the worker."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a worker gives away with its parts.

    Attributes:
        states: the entries of states that belong to the parts, by the state's name.
        ended: the parts that have been read to their end in this run, by source.
        heard: when each part was last heard in this process, by source.
    """

    states: Mapping[str, States]
    ended: Mapping[str, Sequence[Any]]
    heard: Mapping[str, Mapping[Any, datetime]]


# Idea: what belongs to the parts moves, and the worker that gets them goes back in time.
#   positions, keys that are the parts, letters    leave the old worker, and go to the new one
#   epochs of parts                                move too, so a late record stays late
#   epochs of the new worker                       go back to the least of all workers, since the old one may be behind
#   epochs of exchanges                            all workers forget how far the new worker was ahead
#
# Both workers make their operators near the source again, as a start does, with the states that they have then.
#
# Invariant: no epoch that an operator after an exchange has issued goes back, since it was the least of all workers.
# The old worker keeps its epochs; they grow at once if the part held them back.
#
# Example: worker 0 has reached 5 and worker 1 has reached 8 when a part goes from 0 to 1. Worker 1 is at 5 now; keys
# that it had before have a floor of 8.
def move_parts(workers: Workers, program: Program, move: PartMove) -> None:
    """Move parts between workers of this process.

    Raises:
        OperatorError: if user code fails.
    """
    times = times_of(program, move, workers)
    given = give(program, move, workers)
    new = moved_times(program, times, workers.parts, move, workers.listed)
    take(workers, program, move, given, new)


def times_of(program: Program, move: PartMove, workers: Workers) -> dict[str, dict[int, States]]:
    """Return copies of the epochs of operators near the sources of parts, by the state's name and the worker."""
    found: dict[str, dict[int, States]] = {
        spec.name: {}
        for _, spec in _near_specs(program, move.parts)
        if spec.kind.movement in (Movement.EPOCHS, Movement.FRONTIER)
    }
    for stage in workers.stages:
        for worker in stage:
            for name, state in worker.states.live().items():
                if name in found:
                    found[name][worker.worker_id] = dict(state)
    return found


def moved_times(
    program: Program, times: Times, parts: Parts, move: PartMove, listed: Mapping[str, Sequence[Any]]
) -> dict[str, States]:
    """Return the epochs with which the worker that gets the parts continues, by the state's name.

    Args:
        program: the program.
        times: the epochs of all workers before the move: see `times_of`.
        parts: the parts of each source that each worker holds, before the move.
        move: the move.
        listed: the parts of each source.
    """
    workers = max(map(len, parts.values()))
    held = _with_unlisted(program, times, held_parts(parts))
    redeal = redeal_of(program, parts, held, move, listed)
    routed = reroute(program, times, workers, workers, redeal=redeal)
    found: dict[str, States] = {}
    reached = near(program, move.parts)
    for vertex, spec in _near_specs(program, move.parts):
        if spec.kind.movement is Movement.EPOCHS:
            found[spec.name] = routed[spec.name][move.after]
        if spec.kind.movement is Movement.FRONTIER:
            old, least = times[spec.name].get(move.after, {}), routed[spec.name][move.after]
            lowered = {edge for edge, port in enumerate(vertex.inputs) if reached[port.vertex]} | {"merged"}
            kept = {key: it for key, it in old.items() if key not in lowered}
            found[spec.name] = {**kept, **{key: it for key, it in least.items() if key in lowered}}
    return found


def _with_unlisted(program: Program, times: Times, held: dict[str, dict[Any, int]]) -> Held:
    """Add the workers of parts that are not listed now, but have an epoch."""
    for vertex in program.vertices:
        source = vertex.node.source if isinstance(vertex.node, EpochsNode) else None
        if source is None:
            continue
        for worker, state in times.get(vertex.node.name, {}).items():
            for key in state:
                if isinstance(key, tuple):
                    held[source].setdefault(key[1], worker)
    return held


def redeal_of(
    program: Program, parts: Parts, held: Held, move: PartMove, listed: Mapping[str, Sequence[Any]]
) -> Redeal:
    """Return the workers of parts before and after a move.

    Args:
        program: the program.
        parts: the parts of each source that each worker holds, before the move.
        held: the worker of each part, also of parts that are not listed now.
        move: the move.
        listed: the parts of each source.
    """
    after, groups = move.applied(parts, listed), program.part_groups
    workers = max(map(len, parts.values()))
    return Redeal(after, held, PartPlaces(workers, groups, after, held), groups)


def entries_of(program: Program, move: PartMove, workers: Workers) -> dict[str, dict[Any, Any]]:
    """Return the entries of states that belong to parts, but for their positions and epochs, by the state's name."""
    found: dict[str, dict[Any, Any]] = {}
    specs = [
        (vertex, spec)
        for vertex, spec in _near_specs(program, move.parts)
        if spec.kind.movement is not Movement.BY_PART
    ]
    for stage in workers.stages:
        for worker in stage:
            live = worker.states.live() if worker.worker_id == move.before else {}
            for vertex, spec in specs:
                belongs = _belongs(vertex, spec, move) if spec.name in live else None
                entries = {} if belongs is None else {key: it for key, it in live[spec.name].items() if belongs(key)}
                if entries and spec.kind.movement is not Movement.EPOCHS:
                    found[spec.name] = entries
    return found


def give(program: Program, move: PartMove, workers: Workers) -> Given:
    """Suspend the readers of parts on the worker that has them, and return what belongs to the parts.

    Raises:
        OperatorError: if a reader fails.
    """
    states = entries_of(program, move, workers)
    ended, heard = {}, {}
    for source in workers.sources:
        name = source.context.operator_name
        if name in move.parts and source.context.worker_id == move.before:
            heard[name] = {part: source.heard.pop(part) for part in move.parts[name] if part in source.heard}
            ended[name] = workers.stages[0][0].act(source, source.give_up, move.parts[name])
            states[name] = {part: source.state[part] for part in move.parts[name] if part in source.state}
    return Given(states, ended, heard)


def take(workers: Workers, program: Program, move: PartMove, given: Given, times: Mapping[str, States]) -> None:
    """Continue with the parts on their new worker, on all workers of a process.

    Args:
        workers: the workers of the process.
        program: the program.
        move: the move.
        given: what the old worker gave away.
        times: the epochs with which the new worker continues: see `moved_times`.

    Raises:
        OperatorError: if user code fails.
    """
    workers.parts = move.applied(workers.parts, workers.listed)
    reached = near(program, move.parts)
    stages = [at for at, stage in enumerate(program.stages) if any(reached[step.vertex] for step in stage.steps)]
    changes = {move.before: partial(_without, program, move), move.after: partial(_with, given, times)}
    for worker, change in changes.items():
        workers.remake(worker, stages, change)
    for stage in workers.stages:
        for it in stage:
            if it.worker_id == move.after:
                it.states.finish(given.ended)
                for source in it.sources:
                    source.heard.update(given.heard.get(source.context.operator_name, {}))
            _lower_edges(program, reached, move.after, it.states)
    workers.settle_parts()


def _without(program: Program, move: PartMove, live: Mapping[str, States]) -> dict[str, States]:
    """Return the states of the old worker that lose entries."""
    changed: dict[str, States] = {}
    for vertex, spec in _near_specs(program, move.parts):
        belongs = _belongs(vertex, spec, move) if spec.name in live else None
        if belongs is not None:
            changed[spec.name] = {key: it for key, it in live[spec.name].items() if not belongs(key)}
    return changed


def _with(given: Given, times: Mapping[str, States], live: Mapping[str, States]) -> dict[str, States]:
    """Return the states of the new worker that get entries, or go back in time."""
    got = {name: {**live.get(name, {}), **entries} for name, entries in given.states.items()}
    return {**got, **times}  # of other stages too, whose states are not here


def _belongs(vertex: Vertex, spec: StateSpec, move: PartMove) -> Callable[[Any], bool] | None:
    """Return a function that says whether an entry of a state belongs to the parts, by its name; None if none does."""
    node = vertex.node
    match spec.kind.movement:
        case Movement.BY_PART if isinstance(node, SourceNode):
            parts = {*move.parts[node.name]}
            return parts.__contains__
        case Movement.BY_KEY | Movement.BY_SLOT | Movement.BY_ENTRY if placement_of(node) is part_select:
            keys, key_of = {part for them in move.parts.values() for part in them}, key_of_entry(spec)
            return keys.__contains__ if key_of is None else lambda name: key_of(name) in keys
        case Movement.BY_LETTER if node.placed_by is part_select:
            keys = {part for them in move.parts.values() for part in them}
            return lambda name: name[1] in keys
        case Movement.EPOCHS if isinstance(node, EpochsNode) and node.source is not None:
            parts = {*move.parts.get(node.source, ())}
            return lambda name: isinstance(name, tuple) and name[1] in parts
        case _:
            return None


def _lower_edges(program: Program, reached: Sequence[bool], ahead: Any, states: WorkerStates) -> None:
    """Drop from the exchanges of a worker how far another worker was ahead of the others."""
    fed = {
        spec.name
        for vertex in program.vertices
        if isinstance(vertex.node, ExchangeNode) and any(reached[port.vertex] for port in vertex.inputs)
        for spec in specs_of(vertex.node)
    }
    for name, state in states.live().items():
        edges: States = state if name in fed else {}
        if ahead in edges:
            lowered = {ahead: edges["merged"]} if "merged" in edges else {}
            states.apply({name: Delta(lowered, frozenset({ahead}))})
            states.forget((name,))


def _near_specs(program: Program, sources: Collection[str]) -> Iterator[tuple[Vertex, StateSpec]]:
    for vertex, is_near in zip(program.vertices, near(program, sources), strict=True):
        if is_near:
            for spec in specs_of(vertex.node):
                yield vertex, spec
