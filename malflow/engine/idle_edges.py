"""Edges along which no records come, which hold no epoch back.

Where epochs (watermarks) of several generators meet, the edge of one whose source has ended counts until the others
have ended as well: its generator follows them, so that what is kept for an epoch on its way comes out in time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum

from malflow.engine.part_placement import Parts, Place
from malflow.engine.plan import Program, epoch_groups, epochs_along
from malflow.graph import Vertex

__all__ = ["Feed", "Idle", "feeds_of", "idleness", "places_near"]


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
        met: those of all generators of epochs (watermarks) that its own ones meet downstream, and follow once their
            sources have ended.
    """

    local: frozenset[str] = frozenset()
    remote: frozenset[str] = frozenset()
    met: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """The sources upstream, wherever they are."""
        return self.local | self.remote


def feeds_of(program: Program) -> list[tuple[Feed, ...]]:
    """Return, for each vertex, the sources upstream of each of its inputs."""
    carried, met = epochs_along(program), _sources_met(program)
    feeds: list[tuple[Feed, ...]] = []
    given: list[Feed] = []
    for vertex, generators in zip(program.vertices, carried, strict=True):
        inputs = tuple(given[port.vertex] for port in vertex.inputs)
        feeds.append(inputs)
        local, remote = _upstream(vertex, inputs)
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
        own = frozenset[str]().union(*(upstream[port.vertex] for port in vertex.inputs))
        upstream.append(own if vertex.inputs else frozenset({vertex.node.name}))
    sources = {v.node.name: own for v, own in zip(program.vertices, upstream, strict=True) if v.node.issues_epochs}
    return {
        name: frozenset[str]().union(*(sources[other] for other in group))
        for group in epoch_groups(program)
        for name in group
    }


def idleness(feed: Feed, worker: int, parts: Parts, ended: Collection[str]) -> Idle:
    """Return how idle an edge is.

    Args:
        feed: the sources upstream of it.
        worker: the worker that it begins at.
        parts: the parts of each source on each worker.
        ended: the sources that have no unfinished part on any worker.
    """
    near = [name for name in feed.local if parts[name][worker]]
    if not near and not feed.remote:
        return Idle.EMPTY
    return Idle.ENDED if feed.remote.union(near, feed.met).issubset(ended) else Idle.BUSY


def places_near(feed: Feed, worker: int, parts: Parts) -> list[Place]:
    """Return the sources and workers that have parts and from which records come to an edge.

    Args:
        feed: the sources upstream of it.
        worker: the worker that it begins at.
        parts: the parts of each source on each worker.
    """
    near = [(name, worker) for name in sorted(feed.local) if parts[name][worker]]
    far = [(name, at) for name in sorted(feed.remote) for at, held in enumerate(parts[name]) if held]
    return near + [place for place in far if place not in near]
