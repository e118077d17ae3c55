"""Edges along which no records come, which hold no epoch back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

from malflow.engine.parts import Parts, Place
from malflow.engine.plan import Program

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
    """

    local: frozenset[str] = frozenset()
    remote: frozenset[str] = frozenset()


def feeds_of(program: Program) -> list[tuple[Feed, ...]]:
    """Return, for each vertex, the sources upstream of each of its inputs."""
    feeds: list[tuple[Feed, ...]] = []
    given: list[Feed] = []
    for vertex in program.vertices:
        inputs = tuple(given[port.vertex] for port in vertex.inputs)
        local = frozenset().union(*(feed.local for feed in inputs))
        remote = frozenset().union(*(feed.remote for feed in inputs))
        if not vertex.inputs:
            local = frozenset({vertex.node.name})
        if vertex.node.starts_stage:
            local, remote = frozenset(), local | remote
        feeds.append(inputs)
        given.append(Feed(local, remote))
    return feeds


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
    return Idle.ENDED if feed.remote.union(near).issubset(ended) else Idle.BUSY


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
