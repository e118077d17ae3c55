"""Records at which user functions fail, on every runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from malflow import Budget, OnError, OperatorError, Retry, SingleThreadRuntime, StreamProvider
from malflow.events import BudgetExceeded, LettersTaken, RunFinished
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.sources import JsonLinesSource
from malflow.testing import PAUSE, ScriptedSource
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
    counts = runtime.progress.counts
    assert {name: (it["failed"], it["skipped"]) for name, it in counts.items()} == {
        "number": (2, 2),
        "key": (5, 5),
        "total": (skipped, skipped),
    }


@pytest.mark.fault("N7")
def test_dead_letters_are_kept_moved_and_read(any_parallelism: Any, store: FsspecBackend) -> None:
    def build(items: list[Any], policy: Any) -> Any:
        def build_dataflow(provider: StreamProvider) -> None:
            texts = provider.new_stream().source("texts", ScriptedSource(items))
            numbers = texts.map("number", int, on_error=policy).key_distribute("key", lambda msg: msg.value % 3)
            numbers.stateful_map("total", total, list, on_error=policy).sink("out", VecSink())

        return build_dataflow

    items = ["1", "x", "5", "2"]
    any_parallelism(build(items, "dead_letter"), store).execute()
    more = [*items, "y", "10", "3"]
    runtime = any_parallelism(build(more, "dead_letter"), store)
    runtime.execute()
    letters = sorted((it.operator, it.value, it.error, it.message) for it in dead_letters(store, "total"))
    assert letters == [("total", 5, "ValueError", "bad 5"), ("total", 10, "ValueError", "bad 10")]
    assert sorted(it.value for it in dead_letters(store, "number")) == ["x", "y"]
    assert len({it.id for it in dead_letters(store, "number")}) == 2
    counts = runtime.progress.counts["total"]
    assert (counts["letters"], counts["kept"]) == (1, 2)
    SingleThreadRuntime(build([*more, "4"], "fail"), store, parallelism=3).execute()
    assert sorted(it.value for it in dead_letters(store, "total")) == [5, 10]


class Heard:
    """A listener that keeps events of some kinds."""

    def __init__(self, *kinds: type) -> None:
        self.kinds = kinds
        self.events: list[Any] = []

    def on_event(self, event: Any) -> None:
        if isinstance(event, self.kinds):
            self.events.append(event)


def test_events_and_counts_of_failed_records(any_parallelism: Any) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        texts = provider.new_stream().source(
            "texts", ScriptedSource([*"1x2", PAUSE, *"yz5", PAUSE, *"34", PAUSE, None])
        )
        policy = lambda failure: "skip" if isinstance(failure.error, TypeError) else "dead_letter"  # noqa: E731
        numbers = texts.map("number", int, on_error=policy).key_distribute("key", lambda msg: msg.value % 3)
        numbers.stateful_map("total", total, list, on_error="dead_letter").sink("out", VecSink())

    heard = Heard(LettersTaken)
    runtime = any_parallelism(build_dataflow, listeners=[heard])
    runtime.execute()
    counted = {name: (it.failed, it.skipped, it.letters) for name, it in runtime.progress.operators.items()}
    nothing = (None, None, None)
    assert counted == {"texts": nothing, "number": (4, 1, 3), "key": nothing, "total": (1, 0, 1), "out": nothing}
    number = runtime.progress.operators["number"]
    assert dict(number.errors) == {"ValueError": 3, "TypeError": 1}
    assert number.example is not None
    assert "Error: " in number.example
    assert len({(it.tick, it.operator) for it in heard.events}) == len(heard.events), "one a tick and operator"
    assert [it.tick for it in heard.events] == sorted(it.tick for it in heard.events)
    told = {name: sum(it.count for it in heard.events if it.operator == name) for name in ("number", "total")}
    assert told == {"number": 3, "total": 1}


def test_event_of_a_budget_that_is_spent(any_parallelism: Any) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        texts = provider.new_stream().source("texts", sis(["1", "x", "y", "z"]))
        texts.map("number", int, on_error=OnError("skip", budget=Budget(0.25, least=4))).sink("out", VecSink())

    heard = Heard(BudgetExceeded, RunFinished)
    with pytest.raises(OperatorError, match="more than the 25"):
        any_parallelism(build_dataflow, listeners=[heard]).execute()
    spent, end = heard.events
    assert (spent.operator, spent.failed, spent.taken, spent.share) == ("number", 3, 4, 0.25)
    assert spent.errors == {"ValueError": 3}
    assert isinstance(end.error, OperatorError)


def test_dead_letters_are_a_stream(any_parallelism: Any) -> None:
    letters: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        provider.on_dead_letters(
            lambda stream: stream.map("row", lambda it: (it.operator, it.value, it.error, it.message)).sink(
                "letters", StatelessSink(letters)
            )
        )
        texts = provider.new_stream().source("texts", sis(["1", "x", "5", "2", "y", "10"]))
        numbers = texts.map("number", int, on_error="dead_letter").key_distribute("key", lambda msg: msg.value % 3)
        numbers.stateful_map("total", total, list, on_error="dead_letter").sink("out", StatelessSink(VecSink()))

    any_parallelism(build_dataflow).execute()
    assert sorted(letters.values) == [
        ("number", "x", "ValueError", "invalid literal for int() with base 10: 'x'"),
        ("number", "y", "ValueError", "invalid literal for int() with base 10: 'y'"),
        ("total", 5, "ValueError", "bad 5"),
        ("total", 10, "ValueError", "bad 10"),
    ]


def test_a_run_ends_if_too_many_records_fail(any_parallelism: Any) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        texts = provider.new_stream().source("texts", sis([*map(str, range(90)), *["x"] * 30]))
        keyed = texts.key_distribute("key", lambda msg: str(msg.value)[-1:])
        policy = OnError("skip", budget=Budget(0.2))
        keyed.map("number", int, on_error=policy).sink("out", StatelessSink(VecSink()))

    with pytest.raises(OperatorError, match=r"'number' failed at .*budget: ValueError .*; such as .*value 'x'"):
        any_parallelism(build_dataflow).execute()


@pytest.mark.fault("N14")
def test_lines_that_cannot_be_read_and_keys_that_wait(
    any_parallelism: Any, store: FsspecBackend, tmp_path: Path
) -> None:
    file = tmp_path / "numbers.jsonl"
    lines = [*map(str, range(1, 13)), "{", "x"]
    file.write_text("".join(f"{line}\n" for line in lines))

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("lines", JsonLinesSource(file, on_error="dead_letter"))
        tried = numbers.map("try", at_odd, on_error=OnError("dead_letter", retry=Retry(2, first=0, on=(ValueError,))))
        keyed = tried.key_distribute("key", lambda msg: msg.value % 4)
        keyed.stateful_map("total", total, list, on_error="park").sink("out", VecSink())

    runtime = any_parallelism(build_dataflow, store)
    runtime.execute()
    found = [(it.operator, it.value, it.attempts) for it in dead_letters(store)]
    assert sorted(found, key=str) == [
        ("lines", "x", 1),
        ("lines", "{", 1),
        ("total", 10, 1),
        *[("try", number, 2) for number in (1, 11, 3, 5, 7, 9)],
    ]
    operators = runtime.progress.operators
    assert (operators["lines"].taken, operators["lines"].letters, operators["try"].retries) == (12, 2, 6)
    assert runtime.progress.counts["total"]["parked"] == 1


def at_odd(number: int) -> int:
    """Fail for odd numbers."""
    if number % 2:
        raise ValueError("odd")
    return number
