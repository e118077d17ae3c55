"""The assignment of the sources' parts to workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from malflow.partitioners import rendezvous_select

__all__ = ["Parts", "Place", "place_parts", "places_of"]

Parts = Mapping[str, Sequence[Sequence[Any]]]
"""The parts of each source that each worker holds."""

Place = tuple[str, int]
"""A source, and a worker that holds parts of it."""


def place_parts(parts: Mapping[str, Iterable[Any]], workers: Sequence[int]) -> dict[str, list[list[Any]]]:
    """Return the parts of each source that each of the workers holds."""
    placed: dict[str, list[list[Any]]] = {}
    for name, listed in parts.items():
        placed[name] = [[] for _ in workers]
        for part in listed:
            placed[name][rendezvous_select(part, workers)].append(part)
    return placed


def places_of(parts: Parts) -> frozenset[Place]:
    """Return the sources and workers that have parts."""
    return frozenset(
        (name, worker) for name, by_worker in parts.items() for worker, them in enumerate(by_worker) if them
    )
