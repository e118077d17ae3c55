"""A repeated task of Spark sends the answers that its first attempt got, though they would differ by then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.lookups import LookupTable
from malflow.sinks import VecSink
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import in_memory
from tests.spark.simulation import Cluster, Plan, settings_at, simulated

pytest.importorskip("pyspark")

ASKED = count()
"""Numbers that no two calls share; copies of a table have no memory of their own."""


class Draws(LookupTable[int, int]):
    """Answers each call otherwise, and has a row for every other key of a call."""

    def get_many(self, keys: Sequence[int]) -> Mapping[int, int]:
        number = next(ASKED)
        return {key: number for key in keys if (key + number) % 2}


async def draw(n: int) -> tuple[int, int]:
    """Answer each call otherwise."""
    return n, next(ASKED)


def looked_up(stream: Any) -> Any:
    return stream.lookup("draw", None, Draws(), lambda n, row: (n, row), how="inner")


def called(stream: Any) -> Any:
    return stream.map_async("draw", draw, capacity=2).filter("some", lambda it: it[1] % 5 == 0)


@pytest.mark.fault("F18", "O6")
@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("asking", [looked_up, called])
@pytest.mark.slow
def test_a_repeated_task_does_not_ask_again(asking: Callable[[Any], Any], stage: int, tmp_path: Any) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    graph = Graph()
    script = {part: [n for at in range(0, 24, 3) for n in (at, at + 1, at + 2, PAUSE)] for part in "ab"}
    stream: Any = StreamProvider(graph).new_stream().source("numbers", ScriptedSource(script))
    if stage:
        stream = stream.key_distribute("key", lambda msg: msg.value % 5)
    keyed = asking(stream).key_distribute("by row", lambda msg: msg.value[1] % 3)
    keyed.stateful_map("count", lambda _, value, seen: ((*value, seen), seen + 1), default=int).sink("out", sink)
    plans = [Plan(places=(0, 1), again=frozenset(range(8)), killed=tick % 3) for tick in range(12)]
    with simulated():
        Cluster(plans).run(compile_graph(graph), settings_at(str(tmp_path), in_memory()), 2)
    assert sink, "some records have answers"
    nths: dict[int, list[int]] = {}
    for _, row, nth in (message.value for message in sink):
        nths.setdefault(row % 3, []).append(nth)
    for them in nths.values():
        assert them == [*range(len(them))], "each record that was sent is counted once"
