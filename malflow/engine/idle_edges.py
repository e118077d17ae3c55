"""Idle edges, on which no records can arrive and which hold no epoch back.

Where epochs (watermarks) of several generators meet, the edge of one whose source has ended counts until all have
ended: its generator follows the others, so that records held upstream for an epoch are released on time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum

from malflow.engine.part_placement import Parts, Place
from malflow.engine.plan import Program, epoch_groups, epochs_along
from malflow.nodes import Vertex

__all__ = ["Feed", "Idle", "feeds_of", "idleness", "places_near"]


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
