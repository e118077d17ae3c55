"""Records at which user functions fail, on every runtime."""

from __future__ import annotations

from typing import Any

from malflow import StreamProvider
from malflow.sinks import StatelessSink, VecSink
from tests.conformance.dataflow import sis


def total(_key: Any, value: int, seen: list[int]) -> tuple[int, list[int]]:
    """Change the state before the failure."""
    seen.append(value)
    if value % 5 == 0:
        raise ValueError(f"bad {value}")
    return sum(seen), seen


def test_failed_records_are_skipped_and_counted(any_parallelism: Any) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    items = [*map(str, range(40)), "x", None]

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("items", sis(items)).map("number", int, on_error="skip")
        keyed = numbers.key_distribute("key", lambda msg: 7 // (msg.value % 8) and msg.value % 3, on_error="skip")
        policy = lambda failure: "skip" if isinstance(failure.error, ValueError) else "fail"  # noqa: E731
        keyed.stateful_map("total", total, list, on_error=policy).sink("out", StatelessSink(sink))

    runtime = any_parallelism(build_dataflow)
    runtime.execute()
    expected: dict[int, list[int]] = {}
    sums = []
    for number in (it for it in range(40) if it % 8 and it % 5):
        expected.setdefault(number % 3, []).append(number)
        sums.append((number % 3, sum(expected[number % 3])))
    assert sorted((msg.key, msg.value) for msg in sink) == sorted(sums)
    skipped = sum(1 for it in range(40) if it % 8 and not it % 5)
    assert runtime.progress.counts == {
        "number": {"failed": 2, "skipped": 2},
        "key": {"failed": 5, "skipped": 5},
        "total": {"failed": skipped, "skipped": skipped},
    }
