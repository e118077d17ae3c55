"""Functions and aggregators of Python in SQL on all runtimes: of a script, and with classes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from malflow import agg
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

VALUES = [(at % 3, "a bb" if at % 2 else None, at * 1_000) for at in range(12)]


def test_functions_and_aggregators_of_a_script(any_parallelism: Any) -> None:
    @dataclass
    class Word:
        word: str
        size: int

    class Longest(agg.Aggregator[int, int, int]):
        def create(self) -> int:
            return 0

        def add(self, acc: int, value: int, timestamp: Any) -> int:
            return max(acc, value)

        def merge(self, one: int, other: int) -> int:
            return max(one, other)

        def result(self, acc: int) -> int:
            return acc

    def words(text: str) -> Iterator[tuple[str, int]]:
        for it in text.split():
            made = Word(it, len(it))
            yield made.word, made.size

    def twice(number: int) -> int:
        return 2 * number

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        stream = provider.new_stream().source("values", SingleIteratorSource(VALUES))
        timed = stream.event_time("times", lambda message: message.value[2], out_of_orderness=0)
        sql.table("t", timed, "id BIGINT, s STRING, ts TIMESTAMP(3)", time="ts")
        sql.function(words)
        sql.function(twice)
        sql.aggregator("longest", Longest())
        sql.aggregator("median", agg.median(), returns=float)
        text = """SELECT id, longest(twice(n)), COUNT(*), median(n) > 0 FROM (SELECT window_start, window_end, id, n
        FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '6' SECOND)) LEFT JOIN LATERAL TABLE(words(s)) AS w(w, n)
        ON TRUE) GROUP BY window_start, window_end, id"""
        sql.query("q", text).rows(tuple).sink("out", sink)

    sink = VecSink[Any, Any, Any]()
    any_parallelism(build).execute()
    assert sorted(sink.values) == [(at, 4, 3, True) for at in (0, 0, 1, 1, 2, 2)]
