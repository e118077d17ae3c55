"""How evenly parts of sources are dealt to workers, beside their hash, and how many move at a rescale."""

from __future__ import annotations

import random
from collections import Counter
from statistics import median

from malflow.engine.compiler import compile_graph
from malflow.engine.parts.dealing import deal
from malflow.engine.parts.places import held_parts
from malflow.engine.plan import Program
from malflow.graph import Graph
from malflow.partitioners import rendezvous_select
from malflow.sources import StatefulSource
from malflow.streams.stream import StreamProvider
from malflow.testing import ScriptedSource

__all__ = ["measure_deal"]


def measure_deal(parts: int, workers: int, topics: int = 20) -> dict[str, float]:
    """Return the busiest worker's parts and the workers without any, for topics with names drawn at random.

    Also the parts that move to one worker more. Each is the median of the topics, except for the greatest of the deals.
    """
    hashed, idle, dealt, moved = [], [], [], []
    program = _program()
    for _ in range(topics):
        name = "".join(random.choices("abcdefghijklmnop", k=12))
        listed = {"topic": [(name, number) for number in range(parts)]}
        by_hash = Counter(rendezvous_select(part, range(workers)) for part in listed["topic"])
        hashed.append(max(by_hash.values()))
        idle.append(workers - len(by_hash))
        first = deal(program, listed, workers)
        dealt.append(max(map(len, first["topic"])))
        held = held_parts(first)
        then = held_parts(deal(program, listed, workers + 1, held))
        moved.append(sum(then["topic"][part] != worker for part, worker in held["topic"].items()))
    return {"hashed": median(hashed), "idle": median(idle), "dealt": max(dealt), "moved": median(moved)}


def _program() -> Program:
    graph = Graph()
    StreamProvider(graph).new_stream().source("topic", StatefulSource(ScriptedSource({"part": []})))
    return compile_graph(graph)
