"""Each aggregator agrees with its model on every runtime: running, in windows, in windows that share panes."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import agg, limit_out_of_orderness
from malflow.windows import sliding, tumbling
from tests.aggregators.cases import CASES, Case, Record
from tests.aggregators.test_laws import close
from tests.conformance.dataflow import messages_of

READINGS: list[dict[str, Any]] = [
    {"k": "ab"[n * n % 3 % 2], "t": (n * 5) % 7 + n // 2, "i": n * 7 % 5 - 2, "f": (n * 13 % 17) / 7, "s": "abc"[n % 3]}
    for n in range(40)
]
EVERYTHING = agg.tuple_(*[it.aggregator for it in CASES])


def keyed(stream: Any) -> Any:
    stamped = stream.assign_timestamps("at", lambda msg: msg.value["t"])
    on_time, _ = stamped.generate_epochs("epochs", limit_out_of_orderness(7))
    return on_time.key_distribute("k", lambda msg: msg.value["k"])


def records_of(key: str) -> list[Record]:
    return [(it["t"], it) for it in READINGS if it["k"] == key]


def agrees(case: Case, got: Any, rows: list[Record]) -> bool:
    expected = case.model(rows)
    return close(case, got, expected, rows) if case.rounds else case.equal(got, expected)


def disagreements(got: tuple[Any, ...], rows: list[Record]) -> list[str]:
    return [case.name for case, own in zip(CASES, got, strict=True) if not agrees(case, own, rows)]


def test_running_results(any_parallelism: Any) -> None:
    def build(stream: Any) -> Any:
        return keyed(stream).aggregate("so far", EVERYTHING)

    results = messages_of(any_parallelism, READINGS, build)
    for key in "ab":
        own = [it.value for it in results if it.key == key]
        assert [disagreements(it, records_of(key)[:end]) for end, it in enumerate(own, 1)] == [[]] * len(own)
    assert len(results) == len(READINGS)


@pytest.mark.parametrize(("windows", "span"), [(tumbling(4), 1), (sliding(12, 4), 3)], ids=["tumbling", "sliding"])
def test_results_of_windows(any_parallelism: Any, windows: Any, span: int) -> None:
    def build(stream: Any) -> Any:
        return keyed(stream).window(windows).aggregate("windows", EVERYTHING)

    results = messages_of(any_parallelism, READINGS, build)
    for it in results:
        rows = [row for row in records_of(it.key) if it.value.start <= row[0] < it.value.end]
        rows.sort(key=lambda row: row[0] // 4)  # panes are merged in their order
        assert not disagreements(it.value.value, rows)
    panes = {(it["k"], it["t"] // 4 - back) for it in READINGS for back in range(span)}
    assert len(results) == len(panes)
