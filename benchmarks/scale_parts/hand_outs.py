"""How long workers take to read parts of drawn sizes that are handed out, beside parts that are dealt at once."""

from __future__ import annotations

import time
from dataclasses import replace
from random import paretovariate
from statistics import median
from typing import Any

from malflow.engine.compiler import compile_graph
from malflow.engine.parts.dealing import deal
from malflow.engine.parts.places import Parts, with_given
from malflow.engine.parts.pool import PartPool
from malflow.engine.plan import PartAssignment, Program
from malflow.graph import Graph
from malflow.sources import StatefulSource
from malflow.streams.stream import StreamProvider
from malflow.testing import ScriptedSource

__all__ = ["measure_hand_out", "measure_million"]

_TICKS = 400
"""The ticks in which the workers could read everything, if they were never idle."""


class _Sized(ScriptedSource):
    """A source with parts of known sizes, of which none is ever read."""

    bounded = True

    def __init__(self, sizes: dict[Any, int], *, knows: bool) -> None:
        super().__init__({"part": []})
        self._sizes = sizes if knows else {}

    def part_sizes(self, parts: Any) -> dict[Any, int]:
        return {part: self._sizes[part] for part in parts if part in self._sizes}


def measure_hand_out(parts: int, workers: int, draws: int, alpha: float) -> dict[str, float]:
    """Return the ticks to read parts of Pareto's sizes, as a multiple of the fewest possible.

    Each worker reads as much in a tick. The fewest follow from the sum of all sizes, or from the largest part.
    """
    ways: dict[str, tuple[PartAssignment, bool]] = {
        "handed out": ("dynamic", True),
        "sizes unknown": ("dynamic", False),
        "dealt by size": ("static", True),
        "dealt by number": ("static", False),
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(draws):
        sizes = {part: int(10_000 * paretovariate(alpha)) for part in range(parts)}
        amount = sum(sizes.values()) // workers // _TICKS
        least = max(sum(sizes.values()) / workers, *sizes.values()) / amount
        for way, (assignment, knows) in ways.items():
            program = _program(_Sized(sizes, knows=knows), assignment)
            found[way].append(_ticks(program, sizes, workers, amount) / least)
    worst = {f"{way}, worst": max(times) for way, times in found.items()}
    return {way: median(times) for way, times in found.items()} | worst


def measure_million(parts: int, workers: int) -> dict[str, float]:
    """Return the seconds to deal a large number of parts, to hand out the first, and to deal them all at once."""
    sizes = {f"s3://bucket/folder/{part:09}.jsonl": part % 1_000 for part in range(parts)}
    listed, found = {"files": [*sizes]}, {}
    for way, assignment in (("dynamic", "dynamic"), ("static", "static")):
        program = _program(_Sized(sizes, knows=True), assignment)  # type: ignore[arg-type] # of two words
        began = time.perf_counter()
        dealt: Parts = deal(program, listed, workers)
        found[f"{way}, dealt"] = time.perf_counter() - began
        began = time.perf_counter()
        pool = PartPool(program, listed, dealt)
        pool.take()
        found[f"{way}, first parts"] = time.perf_counter() - began
        began, taken = time.perf_counter(), 0
        while pool.waiting and taken < _TICKS:
            pool.note({})
            pool.take()
            taken += 1
        found[f"{way}, the others, in {taken} ticks"] = time.perf_counter() - began
    return found


def _ticks(program: Program, sizes: dict[Any, int], workers: int, amount: int) -> int:
    listed, left = {"files": [*sizes]}, dict(sizes)
    parts: Parts = deal(program, listed, workers)
    pool = PartPool(program, listed, parts)
    hands = [list(them) for them in parts["files"]]
    ticks = 0
    while pool.waiting or any(hands):
        given = pool.take()
        parts = with_given(parts, given)
        for hand, new in zip(hands, given.get("files", [()] * workers), strict=True):
            hand.extend(new)
            rest = amount
            for part in hand:
                read = min(rest, left[part])
                left[part] -= read
                rest -= read
            hand[:] = [part for part in hand if left[part]]
        pool.note({("files", worker): len(hand) for worker, hand in enumerate(hands)})
        ticks += 1
    return ticks


def _program(source: ScriptedSource, assignment: PartAssignment) -> Program:
    graph = Graph()
    StreamProvider(graph).new_stream().source("files", StatefulSource(source))
    return replace(compile_graph(graph), part_assignment=assignment)
