"""Failures, records, keys and requests that are as strange as possible."""

from __future__ import annotations

import asyncio
import builtins
import time
from dataclasses import dataclass
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import OperatorError, QueryError
from malflow.failures import Replay
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, MsgpackCodec, dead_letters
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource
from malflow.testing.driven import DrivenRun
from malflow.testing.trial import built
from tests.bad_records.operators import Rude
from tests.kit.memory_store import MemoryStore


def stored(**options: Any) -> FsspecBackend:
    """Return a store in memory."""
    return FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True, **options)


def every_exception() -> list[Exception]:
    """Return an exception of each built-in class except MemoryError, and of some other classes."""
    made: list[Exception] = [Rude(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), ValueError("m" * 1_000_000)]
    for kind in vars(builtins).values():
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, MemoryError):
            try:
                made.append(kind())
            except TypeError:  # it needs arguments
                continue
    return [*made, ExceptionGroup("many", [ValueError(1), KeyError(object())])]


@pytest.mark.fault("N4")
@pytest.mark.parametrize("operator", ["map", "stateful_map"])
def test_every_exception_becomes_a_letter(operator: str) -> None:
    errors, store = every_exception(), stored()
    assert len(errors) > 50

    def fail(number: int) -> Any:
        raise errors[number]

    def build_dataflow(provider: StreamProvider) -> None:
        numbers: Any = provider.new_stream().source("numbers", SingleIteratorSource(range(len(errors))))
        if operator == "map":
            failing = numbers.map("fail", fail, on_error="dead_letter")
        else:
            keyed = numbers.key_distribute("key", lambda msg: msg.value % 3)
            failing = keyed.stateful_map("fail", lambda _key, it, _state: fail(it), on_error="dead_letter")
        failing.sink("out", VecSink())

    SingleThreadRuntime(build_dataflow, store).execute()
    letters = sorted(dead_letters(store), key=lambda it: it.value)
    assert [it.value for it in letters] == list(range(len(errors)))
    assert [it.error for it in letters] == [type(error).__qualname__ for error in errors]
    assert all(len(it.message) <= 4096 and len(it.trace) <= 4096 and "0x7" not in it.message for it in letters)


class Unhashable:
    """A key whose hash fails."""

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


@pytest.mark.fault("N4")
def test_keys_that_cannot_be_used_become_letters() -> None:
    store, sink = stored(), VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        values: Any = provider.new_stream().source(
            "values", ScriptedSource([[], {}, float("nan"), Unhashable(), "good"])
        )
        values.key_distribute("key", lambda msg: msg.value, on_error="dead_letter").sink("out", sink)

    SingleThreadRuntime(build_dataflow, store, parallelism=2).execute()
    assert sink.values == ["good"]
    assert len(list(dead_letters(store, "key"))) == 4


@dataclass(frozen=True)
class Town:
    """A key that can't be written as plain data."""

    name: str


def by_town(on_error: Any) -> Any:
    """Build a dataflow that fails for each town."""

    def build_dataflow(provider: StreamProvider) -> None:
        names: Any = provider.new_stream().source("names", ScriptedSource(["Ulm", "Bonn"]))
        keyed = names.key_distribute("town", lambda msg: Town(msg.value))
        keyed.map("fail", lambda name: 1 // 0, on_error=on_error).sink("out", VecSink())

    return build_dataflow


@pytest.mark.fault("N16")
def test_a_key_that_the_codec_cannot_write_becomes_a_text() -> None:
    store = stored(codec=MsgpackCodec())
    run = DrivenRun(built(by_town("dead_letter")), parallelism=2, persistence=store)
    run.resume()
    while not run.is_finished:
        run.tick()
    run.snapshots.take(ending=True)
    letters = list(dead_letters(store))
    assert sorted((it.key, it.is_text) for it in letters) == [("Town(name='Bonn')", True), ("Town(name='Ulm')", True)]
    tick = run.ticks.begin(replays=(Replay("fail", None, discards=True),))
    run.ticks.end(tick, run.run(tick))
    run.snapshots.take(ending=True)
    run.close()
    assert list(dead_letters(store)) == []


@pytest.mark.fault("N16")
def test_a_parked_key_must_be_writable() -> None:
    with pytest.raises(OperatorError, match=r"'fail/letters' failed at key .*Town can't be written; register"):
        SingleThreadRuntime(by_town("park"), stored(codec=MsgpackCodec())).execute()


@pytest.mark.fault("N8")
def test_replays_while_stopping_do_all_or_nothing() -> None:
    for _ in range(5):
        store, sink = stored(), VecSink[Any, Any, Any]()
        broken = [True]

        def parse(text: str, broken: list[bool] = broken) -> str:
            if broken[0]:
                raise ValueError(text)
            return text

        def build_dataflow(provider: StreamProvider, sink: Any = sink, parse: Any = parse) -> None:
            texts = provider.new_stream().source("texts", ScriptedSource([*"abc", *[PAUSE] * 10_000]))
            texts.map("parse", parse, on_error="dead_letter").sink("out", StatelessSink(sink))

        handle = SingleThreadRuntime(build_dataflow, store).start()
        while handle.progress.counts.get("parse", {}).get("letters") != 3:
            time.sleep(0.001)
        broken[0] = False
        twice = [handle.replay("parse") for _ in range(2)]
        handle.stop()
        assert handle.await_termination(60)
        found = [0 if isinstance(it.exception(60), QueryError) else it.result().done for it in twice]
        assert sum(found) in (0, 3)
        assert [it.value for it in sink] == ([*"abc"] if sum(found) else [])
        assert [it.value for it in dead_letters(store)] == ([] if sum(found) else [*"abc"])


class _Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__name__"):
            raise RuntimeError("no name")
        return type.__getattribute__(cls, name)


def nameless() -> Exception:
    """Return an exception whose class refuses to tell its name."""
    return _Meta("Nameless", (Exception,), {})("odd")  # type: ignore[no-any-return] # a class made by a call


@pytest.mark.fault("N4")
def test_a_class_that_refuses_its_name_and_others_that_are_no_exception() -> None:
    store = stored()
    errors: list[BaseException] = [nameless(), asyncio.CancelledError("stop"), StopIteration("at the end")]

    def fail(number: int) -> Any:
        raise errors[number]

    def build_dataflow(provider: StreamProvider) -> None:
        numbers: Any = provider.new_stream().source("numbers", SingleIteratorSource(range(3)))
        numbers.map("fail", fail, on_error="dead_letter").sink("out", VecSink())

    SingleThreadRuntime(build_dataflow, store).execute()
    assert [(it.error, it.message) for it in dead_letters(store)] == [
        ("Nameless", "odd"),
        ("RuntimeError", "CancelledError, though nobody cancelled the call"),
        ("StopIteration", "at the end"),
    ]
    assert all("raise errors[number]" in it.trace for it in dead_letters(store))


@pytest.mark.parametrize("is_nameless", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_an_error_without_a_policy_names_operator_and_record(is_nameless: bool, keyed: bool) -> None:
    error = nameless() if is_nameless else asyncio.CancelledError("stop")

    def fail(*_: Any) -> Any:
        raise error

    def build_dataflow(provider: StreamProvider) -> None:
        numbers: Any = provider.new_stream().source("numbers", SingleIteratorSource([7]))
        stream = numbers.key_distribute("k", lambda _: 0) if keyed else numbers
        (stream.stateful_map("fail", fail) if keyed else stream.map("fail", fail)).sink("out", VecSink())

    with pytest.raises(OperatorError, match=r"operator 'fail' failed at key \w+, value 7") as failure:
        SingleThreadRuntime(build_dataflow).execute()
    assert failure.value.__cause__ is error
