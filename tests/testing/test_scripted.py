"""Scripts: values with times, and the marks that crash, pause and end."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from malflow import DataMessage, NoKey, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.sinks import StatelessSink, VecSink
from malflow.testing import CRASH, END, PAUSE, Crash, ScriptedSource, Timed
from tests.kit.backends import in_memory


class Ticks:
    """A sink that keeps the records of each tick apart."""

    def __init__(self) -> None:
        self.ticks: list[list[DataMessage[Any, Any, Any]]] = [[]]

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        self.ticks[-1].append(msg)

    def flush(self) -> None:
        self.ticks.append([])

    @property
    def values(self) -> list[list[Any]]:
        return [[msg.value for msg in tick] for tick in self.ticks if tick]


def play(source: ScriptedSource, seen: Ticks | None = None) -> Ticks:
    seen = Ticks() if seen is None else seen

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("script", source).sink("seen", StatelessSink(seen))  # type: ignore[arg-type]

    SingleThreadRuntime(build_dataflow, debug=True).execute()  # whole batches from the first tick on
    return seen


def drain(source: ScriptedSource, part: Any, position: int | None) -> list[tuple[Any, Any]]:
    reader, records = source.build_part(part, position), []
    while not reader.is_finished():
        record = reader.poll()
        if record is not None:
            records.append(record)
    return records


def test_default_timestamp_is_the_index_of_the_value() -> None:
    (tick,) = (tick for tick in play(ScriptedSource(["a", Timed("b", 70), "c"])).ticks if tick)

    assert tick == [DataMessage(NoKey, "a", 0), DataMessage(NoKey, "b", 70), DataMessage(NoKey, "c", 2)]


def test_a_mapping_gives_each_record_its_part_as_key() -> None:
    script: Mapping[Any, Iterable[Any]] = {"left": ["a"], "right": iter(["b", "c"])}
    seen = play(ScriptedSource(script))

    assert {(msg.key, msg.value, msg.timestamp) for tick in seen.ticks for msg in tick} == {
        ("left", "a", 0),
        ("right", "b", 0),
        ("right", "c", 1),
    }


def test_a_pause_puts_what_comes_after_it_into_another_tick() -> None:
    assert play(ScriptedSource([1, 2, PAUSE, 3, PAUSE])).values == [[1, 2], [3]]
    assert play(ScriptedSource([1, 2, 3])).values == [[1, 2, 3]]


def test_a_crash_comes_after_what_is_before_it_has_been_written() -> None:
    seen = Ticks()

    with pytest.raises(Crash, match="part NoKey crashed at item 2"):
        play(ScriptedSource([1, 2, CRASH, 3]), seen)

    assert seen.values == [[1, 2]]


def test_a_crash_happens_once_a_source_and_place() -> None:
    source = ScriptedSource([1, CRASH, 2, CRASH])

    for _ in range(2):
        with pytest.raises(Crash):
            play(source)
    assert play(source).values == [[1], [2]]


def test_a_crash_is_nothing_that_a_handler_of_exceptions_catches() -> None:
    assert not issubclass(Crash, Exception)


def test_an_end_ends_the_part_and_a_resumed_run_goes_on_behind_it() -> None:
    source = ScriptedSource([1, END, 2, 3])
    first = source.build_part(NoKey, None)

    assert first.poll_batch(10) == ([1], [0])
    assert first.is_finished()
    assert drain(source, NoKey, first.snapshot()) == [(2, 1), (3, 2)]


def test_a_position_before_an_end_reaches_the_end_again() -> None:
    source = ScriptedSource([1, 2, END, 3])
    first = source.build_part(NoKey, None)
    first.poll()

    assert drain(source, NoKey, first.snapshot()) == [(2, 1)]


@pytest.mark.parametrize("polls", range(7))
def test_a_part_goes_on_from_every_position(polls: int) -> None:
    source = ScriptedSource({"p": [1, PAUSE, 2, Timed(3, 30), CRASH, 4]})
    source._crashed.add(("p", 4))
    before, records = source.build_part("p", None), []
    for _ in range(polls):
        record = before.poll()
        if record is not None:
            records.append(record)

    assert records + drain(source, "p", before.snapshot()) == [(1, 0), (2, 1), (3, 30), (4, 3)]


def test_a_batch_is_no_longer_than_was_asked_for() -> None:
    part = ScriptedSource(range(5)).build_part(NoKey, None)

    assert [part.poll_batch(2) for _ in range(3)] == [([0, 1], [0, 1]), ([2, 3], [2, 3]), ([4], [4])]


def test_an_empty_script_is_finished_at_once() -> None:
    assert play(ScriptedSource([])).values == []
    assert play(ScriptedSource({})).values == []


def test_marks_stay_what_they_are_when_they_travel() -> None:
    assert pickle.loads(pickle.dumps([CRASH, PAUSE, END])) == [CRASH, PAUSE, END]
    assert repr([CRASH, PAUSE, END]) == "[CRASH, PAUSE, END]"


def test_a_script_with_fewer_items_than_were_read_is_told() -> None:
    backend = in_memory()
    run_script(ScriptedSource([1, 2, 3]), backend)
    with pytest.raises(
        OperatorError, match="has 2 items, but its snapshot says that 3 were read; a script may only grow"
    ):
        run_script(ScriptedSource([1, 2]), backend)


def run_script(source: ScriptedSource, backend: Any) -> None:
    SingleThreadRuntime(
        lambda provider: provider.new_stream().source("script", source).sink("out", VecSink()), backend
    ).execute()
