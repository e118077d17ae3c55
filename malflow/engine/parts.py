"""Which worker holds which parts of the sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from malflow.partitioners import rendezvous_select

__all__ = ["Parts", "place_parts"]

Parts = Mapping[str, Sequence[Sequence[Any]]]
"""The parts of each source that each worker holds."""


def place_parts(parts: Mapping[str, Iterable[Any]], workers: Sequence[int]) -> dict[str, list[list[Any]]]:
    """Return the parts of each source that each of the workers holds."""
    placed: dict[str, list[list[Any]]] = {}
    for name, listed in parts.items():
        placed[name] = [[] for _ in workers]
        for part in listed:
            placed[name][rendezvous_select(part, workers)].append(part)
    return placed
