"""Replays of dead letters in a running job, on all runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, RunHandle, StreamProvider
from malflow.errors import QueryError
from malflow.failures import Replayed
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.waiting import wait_until

SECONDS = 120.0


class Parse:
    """Parses texts; others than numbers fail until a file is there."""

    def __init__(self, mended: Path) -> None:
        self._mended = mended

    def __call__(self, text: str) -> int:
        """Return the number, or the length of any other text."""
        return int(text) if text.isdigit() or not self._mended.exists() else len(text)


class Add:
    """Adds numbers; those that are divisible by 5 fail, after the state has changed, until a file is there."""

    def __init__(self, mended: Path) -> None:
        self._mended = mended

    def __call__(self, _key: Any, number: int, seen: list[int]) -> Any:
        """Return the sum, and the state."""
        seen.append(number)
        if number % 5 == 0 and not self._mended.exists():
            raise ValueError(f"bad {number}")
        return sum(seen), seen


def started(runtime: Any, store: Any, mended: Path, sink: Any) -> RunHandle:
    """Start a run, and wait until it has taken all records."""

    def build_dataflow(provider: StreamProvider) -> None:
        items = ["1", "x", "5", "2", "xyz", "10", "3", *[PAUSE] * 10_000]
        texts = provider.new_stream().source("texts", ScriptedSource(items))
        keyed = texts.map("parse", Parse(mended), on_error="dead_letter").key_distribute("key", lambda msg: 1)
        keyed.stateful_map("add", Add(mended), list, on_error="dead_letter").sink("out", StatelessSink(sink))

    handle: RunHandle = runtime(build_dataflow, store).start()
    wait_until(lambda: handle.progress.records.get("out") == 3, SECONDS)
    return handle


@pytest.mark.fault("N8")
def test_letters_are_replayed_once_and_fail_again_or_not(
    any_parallelism: Any, store: FsspecBackend, tmp_path: Path
) -> None:
    mended, sink = tmp_path / "mended", VecSink[Any, Any, Any]()
    handle = started(any_parallelism, store, mended, sink)
    try:
        assert handle.replay("parse").result(SECONDS) == Replayed(done=2)
        assert handle.replay("parse", ["unknown"]).result(SECONDS) == Replayed()
        handle.snapshot().result(SECONDS)
        letters = list(dead_letters(store, "parse"))
        assert sorted((it.value, it.attempts) for it in letters) == [("x", 2), ("xyz", 2)]
        by_id = {it.id: it for it in letters}
        assert {it.id: it for it in handle.letters("parse").result(SECONDS)} == by_id
        assert len(handle.letters("parse", 1).result(SECONDS)) == 1
        mended.touch()
        (x,) = [it.id for it in letters if it.value == "x"]
        assert handle.replay("parse", [x]).result(SECONDS) == Replayed(done=1)
        assert handle.discard("parse").result(SECONDS) == Replayed(done=1)
        handle.rescale(3).result(SECONDS)
        assert handle.letters("parse").result(SECONDS) == []
        assert sorted(it.value for it in handle.letters("add").result(SECONDS)) == [5, 10]
        assert handle.replay("add").result(SECONDS) == Replayed(done=2)
        for ask in (handle.replay, handle.letters):
            with pytest.raises(GraphError, match=r"no operator 'prse' can have dead letters; did you mean 'parse'\?"):
                ask("prse")
        with pytest.raises(GraphError, match="limit must be a whole number, at least 1"):
            handle.letters("add", 0)
    finally:
        handle.stop()
        assert handle.await_termination(SECONDS)
    assert sorted(msg.value for msg in sink) == [1, 3, 6, 7, 12, 22]
    assert list(dead_letters(store)) == []
    with pytest.raises(QueryError, match="the run has ended, and its dead letters stay"):
        handle.replay("add")


@pytest.mark.fault("N8")
def test_a_replay_and_its_effect_are_in_one_snapshot(runtime: Any, store: FsspecBackend, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    handle = started(runtime, store, mended, VecSink())
    handle.stop()
    assert handle.await_termination(SECONDS)
    mended.touch()
    sink = VecSink[Any, Any, Any]()

    def again(provider: StreamProvider) -> None:
        items = ["1", "x", "5", "2", "xyz", "10", "3", *[PAUSE] * 10_000]
        texts = provider.new_stream().source("texts", ScriptedSource(items))
        keyed = texts.map("parse", Parse(mended), on_error="fail").key_distribute("key", lambda msg: 1)
        keyed.stateful_map("add", Add(mended), list, on_error="fail").sink("out", StatelessSink(sink))

    handle = runtime(again, store).start()
    wait_until(lambda: handle.progress.tick > 0, SECONDS)
    assert handle.replay("add").result(SECONDS) == Replayed(done=2)
    handle.stop()
    assert handle.await_termination(SECONDS)
    assert [it.value for it in sink] == [11, 21]
    assert sorted(it.value for it in dead_letters(store)) == ["x", "xyz"]


@pytest.mark.fault("N12")
def test_a_parked_key_is_replayed_in_its_order(any_parallelism: Any, store: FsspecBackend, tmp_path: Path) -> None:
    mended, sink = tmp_path / "mended", VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource([5, 1, 2, 10, 3, *[PAUSE] * 10_000]))
        keyed = numbers.key_distribute("key", lambda msg: msg.value == 2)
        keyed.stateful_map("add", Add(mended), list, on_error="park").sink("out", StatelessSink(sink))

    handle = any_parallelism(build_dataflow, store).start()
    try:
        wait_until(lambda: handle.progress.counts.get("add", {}).get("letters") == 4, SECONDS)
        assert handle.replay("add").result(SECONDS) == Replayed(1, parked=3)
        handle.snapshot().result(SECONDS)
        letters = list(dead_letters(store, "add"))
        assert [(it.value, it.attempts, it.is_parked) for it in letters] == [
            (5, 2, True),
            (1, 0, True),
            (10, 0, True),
            (3, 0, True),
        ]
        assert handle.replay("add", [letters[1].id]).result(SECONDS) == Replayed(parked=1)
        mended.touch()
        handle.rescale(3).result(SECONDS)
        assert handle.discard("add", [letters[1].id]).result(SECONDS) == Replayed(1)
        assert handle.replay("add").result(SECONDS) == Replayed(3)
    finally:
        handle.stop()
        assert handle.await_termination(SECONDS)
    assert [msg.value for msg in sink if msg.key is False] == [5, 15, 18]
    assert list(dead_letters(store)) == []
