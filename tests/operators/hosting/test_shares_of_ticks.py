"""The parts of a worker share its tick: quiet ones leave their share to the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.events import Event, TickFinished
from malflow.records.batch import BATCH_SIZE
from malflow.sinks import VecSink
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition


class Numbers(StatefulSourceImpl[str, int, int, int]):
    """A source of parts that have so many numbers, of which a poll gives so many at most."""

    def __init__(self, rows: Mapping[str, int], at_once: int = BATCH_SIZE) -> None:
        self.rows, self.at_once = rows, at_once

    def list_parts(self) -> list[str]:
        return [*self.rows]

    def build_part(self, part: str, state: int | None) -> NumbersPart:
        return NumbersPart(self.rows[part], self.at_once, state or 0)


class NumbersPart(StatefulSourcePartition[int, int, int]):
    """One part; it must not be polled after its end."""

    def __init__(self, rows: int, at_once: int, at: int) -> None:
        self.rows, self.at_once, self.at = rows, at_once, at

    def poll_batch(self, limit: int) -> tuple[list[int], list[int]]:
        assert not self.is_finished()
        values = [*range(self.at, min(self.at + limit, self.at + self.at_once, self.rows))]
        self.at += len(values)
        return values, values

    def is_finished(self) -> bool:
        return self.at >= self.rows

    def snapshot(self) -> int:
        return self.at


class Ticks:
    """Notes how many records each tick has read."""

    def __init__(self) -> None:
        self.polled: list[int] = []

    def on_event(self, event: Event, /) -> None:
        if isinstance(event, TickFinished):
            self.polled.append(event.polled)


def read(source: Any) -> tuple[list[tuple[str, int]], list[int]]:
    """Read a source with whole ticks; return the records in their order, and how many each tick had."""
    out: VecSink[Any, Any, Any] = VecSink()
    ticks = Ticks()

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", StatefulSource(source)).sink("out", out)

    SingleThreadRuntime(build, debug=True, listeners=[ticks]).execute()
    return [(it.key, it.value) for it in out], ticks.polled


QUIET = dict.fromkeys(("b", "c", "d"), 10)


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ({"a": 5 * BATCH_SIZE, **QUIET}, {"a": BATCH_SIZE - 30, **QUIET}),
        ({"a": 5 * BATCH_SIZE, **QUIET, "e": 5 * BATCH_SIZE}, {"a": BATCH_SIZE // 2 - 15, **QUIET, "e": 4081}),
        ({"a": 2500, **QUIET, "e": 5 * BATCH_SIZE}, {"a": 2500, **QUIET, "e": BATCH_SIZE - 2530}),
        ({"a": BATCH_SIZE // 4, **QUIET}, {"a": BATCH_SIZE // 4, **QUIET}),
        ({"a": 5 * BATCH_SIZE, "b": 5 * BATCH_SIZE}, {"a": BATCH_SIZE // 2, "b": BATCH_SIZE // 2}),
    ],
    ids=["one fast", "two fast", "one that ends", "one that ends with its share", "all fast"],
)
def test_a_first_tick_has_what_fast_parts_have(rows: dict[str, int], first: dict[str, int]) -> None:
    records, ticks = read(Numbers(rows))
    got = Counter(part for part, _ in records[: ticks[0]])
    assert all(abs(got[part] - count) < 64 for part, count in first.items()), got
    assert ticks[0] <= BATCH_SIZE
    for part, count in rows.items():
        assert [value for it, value in records if it == part] == [*range(count)], "in order, once"


def test_parts_that_give_less_than_asked_are_polled_once_a_tick() -> None:
    _, ticks = read(Numbers({"a": 3000, "b": 3000, "c": 10}, at_once=1000))
    assert ticks[:3] == [2010, 2000, 2000]
