"""The event time of one worker: the progress of its epoch generators, and its idle edges.

Where epochs (watermarks) of several generators meet, the edge of one whose source has ended counts until all have
ended: its generator follows the others, so that records held upstream for an epoch are released on time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from malflow.engine.parts.places import Parts, Place
from malflow.engine.plan import Program, epoch_groups, epochs_along, generators_behind
from malflow.engine.stage_operators import StageOperators
from malflow.nodes import StatefulNode, Vertex
from malflow.operators.contract import Operator
from malflow.operators.waiting import OperatorTime, Reached

__all__ = [
    "Feed",
    "Idle",
    "WorkerTime",
    "feeds_of",
    "idleness",
    "places_near",
]


class Idle(IntEnum):
    """Whether records may arrive on an edge; an idle edge holds no epoch back."""

    BUSY = 0
    ENDED = 1
    EMPTY = 2


@dataclass(frozen=True, slots=True)
class Feed:
    """The sources upstream of an edge.

    Attributes:
        local: the sources whose records come from the same worker.
        remote: the sources whose records may come from any worker, through an exchange.
        met: the sources of all epoch (watermark) generators that the edge's own ones meet downstream, and follow once
            their sources have ended.
    """

    local: frozenset[str] = frozenset()
    remote: frozenset[str] = frozenset()
    met: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """All sources upstream, local and remote."""
        return self.local | self.remote


def feeds_of(program: Program) -> list[tuple[Feed, ...]]:
    """Return, for each vertex, the sources upstream of each of its inputs."""
    carried, met = epochs_along(program), _sources_met(program)
    feeds: list[tuple[Feed, ...]] = []
    given: list[Feed] = []
    for vertex, generators in zip(program.vertices, carried, strict=True):
        inputs = tuple(given[port.vertex] for port in vertex.inputs)
        feeds.append(inputs)
        local, remote = _upstream(vertex, inputs if vertex.has_letters else inputs[: len(vertex.timed_by)])
        given.append(Feed(local, remote, frozenset[str]().union(*(met[name] for name in generators))))
    return feeds


def _upstream(vertex: Vertex, inputs: Iterable[Feed]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the local and the remote sources of a vertex's output."""
    inputs = list(inputs)
    local = frozenset[str]().union(*(feed.local for feed in inputs)) if inputs else frozenset({vertex.node.name})
    remote = frozenset[str]().union(*(feed.remote for feed in inputs))
    return (frozenset(), local | remote) if vertex.node.starts_stage else (local, remote)


def _sources_met(program: Program) -> dict[str, frozenset[str]]:
    """Return, by generator, the sources of all generators that it meets downstream, itself included."""
    upstream: list[frozenset[str]] = []
    for vertex in program.vertices:
        own = frozenset[str]().union(*(upstream[port.vertex] for port in vertex.timed_by))
        upstream.append(own if vertex.inputs else frozenset({vertex.node.name}))
    sources = {v.node.name: own for v, own in zip(program.vertices, upstream, strict=True) if v.node.issues_epochs}
    return {
        name: frozenset[str]().union(*(sources[other] for other in group))
        for group in epoch_groups(program)
        for name in group
    }


def idleness(feed: Feed, worker: int, parts: Parts, ended: Collection[str]) -> Idle:
    """Return the idleness of an edge.

    Args:
        feed: the sources upstream of it.
        worker: the worker at which it begins.
        parts: the parts of each source on each worker.
        ended: the sources that have no unfinished part on any worker.
    """
    near = [name for name in feed.local if parts[name][worker]]
    if not near and not feed.remote:
        return Idle.EMPTY
    return Idle.ENDED if feed.remote.union(near, feed.met).issubset(ended) else Idle.BUSY


def places_near(feed: Feed, worker: int, parts: Parts) -> list[Place]:
    """Return the sources and workers with parts that reach an edge.

    Args:
        feed: the sources upstream of it.
        worker: the worker at which it begins.
        parts: the parts of each source on each worker.
    """
    near = [(name, worker) for name in sorted(feed.local) if parts[name][worker]]
    far = [(name, at) for name in sorted(feed.remote) for at, held in enumerate(parts[name]) if held]
    return near + [place for place in far if place not in near]


class WorkerTime:
    """Follows event time through one stage of one worker.

    Args:
        program: the whole program.
        worker_id: the index of this worker.
        workers: all workers.
        operators: the operators of the stage.

    Attributes:
        finished: the sources without an unfinished part, and the workers where they have none.
    """

    def __init__(self, program: Program, worker_id: int, workers: Sequence[int], operators: StageOperators) -> None:
        self._worker_id = worker_id
        self._workers = workers
        self._act = operators.act
        self._operators = operators.operators
        self._generators = operators.generators
        self._feeds = feeds_of(program)
        self._exchanges = {vertex for vertex in self._operators if program.vertices[vertex].node.starts_stage}
        behind = generators_behind(program)
        self._holders = [
            (operator, behind[vertex])
            for vertex, operator in self._operators.items()
            if behind[vertex] and isinstance(program.vertices[vertex].node, StatefulNode)
        ]
        self._parts: Parts = {}
        self._ended: Collection[str] = ()
        self.finished: frozenset[Place] = frozenset()

    def set_parts(self, parts: Parts) -> None:
        """Set the parts of each source that each worker holds."""
        self._parts = parts
        for vertex, generator in self._generators.items():
            generator.fed_by = places_near(self._feeds[vertex][0], self._worker_id, parts)
        self._set_idle_inputs()

    def note_ended(self, ended: Collection[str], *, final: bool) -> None:
        """Record which sources have ended on all workers; in the final tick, all inputs count again."""
        if ended != self._ended or final:
            self._ended = ended
            self._set_idle_inputs(final=final)

    def _set_idle_inputs(self, *, final: bool = False) -> None:
        for vertex, operator in self._operators.items():
            feeds = self._feeds[vertex]
            if vertex in self._exchanges:
                differ = self._workers if feeds[0].local else self._workers[:1]  # what is only remote is so everywhere
                idle = [idleness(feeds[0], worker, self._parts, self._ended) for worker in differ]
                idle *= len(self._workers) // len(differ)
            else:
                idle = [idleness(feed, self._worker_id, self._parts, self._ended) for feed in feeds]
            operator.set_idle_inputs([Idle.BUSY] * len(idle) if final else idle)

    def lift(self, lifts: Mapping[str, Any]) -> None:
        """Pass to generators, by name, the epochs that they issue at the beginning of the tick."""
        for generator in self._generators.values():
            name = generator.context.operator_name
            if name in lifts:
                is_finished = bool(generator.fed_by) and self.finished.issuperset(generator.fed_by)
                generator.lift_to(lifts[name], is_finished=is_finished)

    def reached(self) -> dict[str, list[Reached]]:
        """Return the progress of the epoch generators that records on this worker reach.

        With ``idle_after``, generators with an epoch per part are reported part by part. Also report operators of this
        worker that hold records for generators on any worker.
        """
        reached = {
            generator.context.operator_name: list(
                generator.reached(is_finished=self.finished.issuperset(generator.fed_by))
            )
            for generator in self._generators.values()
            if generator.fed_by
        }
        for operator, names in self._holders:
            if self._act(operator, operator.held) is not None:
                for name in names:
                    reached.setdefault(name, []).append(Reached(None, False, holds=True))
        return reached

    def explain(self) -> dict[int, OperatorTime]:
        """Return the progress of each operator in event time, by vertex."""
        return {vertex: _time_of(operator) for vertex, operator in self._operators.items()}


def _time_of(operator: Operator) -> OperatorTime:
    """Return the time of an operator; empty if user code fails, since an explanation must not end a run."""
    try:
        return operator.time()
    except Exception:  # noqa: BLE001 - such as from the user's partition of time
        return OperatorTime()
