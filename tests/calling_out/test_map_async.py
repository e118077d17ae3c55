"""`map_async`: results as those of `map`, the first failure by position, and nothing under way after a tick."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from types import GeneratorType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError, Retry, SingleThreadRuntime, StreamProvider
from malflow.operators.calls.event_loop import run_on_loop
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource, assert_exactly_once

pytestmark = pytest.mark.slow


async def under_way() -> int:
    """Return the number of tasks on the loop of the process, without this one."""
    return len(asyncio.all_tasks()) - 1


def called(values: Sequence[Any], function: Any, **options: Any) -> list[Any]:
    """Return the results of a function that is called by a dataflow, after which nothing is under way."""
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("numbers", SingleIteratorSource(values))
        stream.map_async("call", function, **options).sink("out", sink)

    try:
        SingleThreadRuntime(build).execute()
    finally:
        assert run_on_loop(under_way()) == 0
    return sink.values


async def same(value: Any) -> Any:
    return value


def messages(call: Any, items: Any, parallelism: int, *, debug: bool) -> tuple[list[Any], list[Any]]:
    """Return the messages and epochs that follow a call."""
    sink: VecSink[Any, Any, Any] = VecSink()
    epochs: list[Any] = []

    def build(provider: StreamProvider) -> None:
        numbers: Any = provider.new_stream().source("numbers", ScriptedSource(items))
        timed = numbers.event_time("time", lambda msg: msg.value, out_of_orderness=3)
        mapped = call(call(timed, "first").key_distribute("key", lambda msg: msg.value % 3), "second")
        mapped.inspect_frontier("epochs", lambda epoch, context: epochs.append((context.worker_id, epoch)))
        mapped.map_async("equal ticks", same).sink("out", sink)  # for the least size of ticks is that of its capacity

    SingleThreadRuntime(build, parallelism=parallelism, debug=debug).execute()
    return list(sink), epochs


NUMBERS = st.lists(st.integers(0, 20) | st.just(PAUSE), max_size=20)


@given(
    items=st.fixed_dictionaries({"a": NUMBERS, "b": NUMBERS}),
    parallelism=st.integers(1, 3),
    debug=st.booleans(),
    options=st.fixed_dictionaries(
        {"capacity": st.integers(1, 5)},
        optional={
            "batch": st.integers(1, 4),
            "timeout": st.just(timedelta(minutes=1)),
            "retry": st.just(Retry(first=0)),
        },
    ),
    turns=st.lists(st.integers(0, 4), min_size=1),
)
def test_messages_and_epochs_are_those_of_map(
    items: Any, parallelism: int, debug: bool, options: dict[str, Any], turns: list[int]
) -> None:
    calls = count()

    async def doubled(value: Any) -> Any:
        number = next(calls)
        for _ in range(turns[number % len(turns)]):
            await asyncio.sleep(0)
        if "retry" in options and number % 4 == 0:
            raise TimeoutError
        return [2 * each for each in value] if "batch" in options else 2 * value

    if "retry" in options:
        options["retry"] = Retry(attempts=1_000, first=0)
    expected = messages(lambda stream, name: stream.map(name, lambda value: 2 * value), items, parallelism, debug=debug)
    found = messages(lambda stream, name: stream.map_async(name, doubled, **options), items, parallelism, debug=debug)
    assert found == expected


def test_no_more_calls_than_the_capacity_are_under_way() -> None:
    now, most, full = 0, 0, asyncio.Event()

    async def together(value: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 7:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        now -= 1
        return value

    assert called(range(50), together, capacity=7) == [*range(50)]
    assert most == 7


def test_a_list_of_values_is_one_call() -> None:
    sizes: list[int] = []

    async def doubled(values: list[int]) -> list[int]:
        sizes.append(len(values))
        return [2 * value for value in values]

    assert called(range(100), doubled, batch=64, capacity=1) == [*range(0, 200, 2)]
    assert sizes == [64, 36], "the first tick has no fewer records than make several calls"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [(None, "must return a list of a result for each value"), ([1], "a result for each of 2 values; got 1")],
)
def test_a_list_of_other_length_is_refused(answer: Any, problem: str) -> None:
    async def wrong(values: list[int]) -> Any:
        return values if 2 not in values else answer

    with pytest.raises(OperatorError, match=f"'call' failed at .* value 2, .*{problem}"):
        called(range(5), wrong, batch=2)


@pytest.mark.fault("O1")
@pytest.mark.parametrize("order", ["earlier_first", "later_first"])
def test_the_first_failure_counts_and_later_calls_are_cancelled(order: str) -> None:
    begun, cancelled, ended = set[int](), set[int](), set[int]()
    other = asyncio.Event()

    async def fails(value: int) -> int:
        begun.add(value)
        try:
            await asyncio.sleep(0)  # until the others have begun
            if value == (4 if order == "earlier_first" else 2):
                await other.wait()  # it ends after the failure of the other
            if value in (2, 4):
                other.set()
                raise ValueError(value)
            if value > 4:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            cancelled.add(value)
            raise
        ended.add(value)
        return value

    with pytest.raises(
        OperatorError, match=r"'call' failed at .* value 2, timestamp 2: ValueError: 2; in .*fails"
    ) as it:
        called(range(100), fails, capacity=10)
    assert isinstance(it.value.__cause__, ValueError)
    assert (it.value.value, it.value.timestamp) == (2, 2)
    assert ended == ({0, 1} if order == "earlier_first" else {0, 1, 3})
    assert begun >= {*range(10)}
    assert cancelled >= {*range(5, 10)}
    assert max(begun) < 15, "no call begins after the failure"


@pytest.mark.fault("O1")
def test_no_call_begins_after_a_failure() -> None:
    begun: list[int] = []

    async def fails(value: int) -> int:
        begun.append(value)
        if value == 1:
            raise ValueError(value)
        for _ in range(5):
            await asyncio.sleep(0)
        return value

    with pytest.raises(OperatorError, match="value 1, "):
        called(range(10), fails, capacity=2)
    assert begun == [0, 1], "the first call ends after the failure"


@pytest.mark.fault("O2")
def test_a_call_without_an_answer_in_time_is_cancelled() -> None:
    ended: list[str] = []

    async def slow(value: int) -> int:
        try:
            await asyncio.sleep(3600 if value == 1 else 0)
        finally:
            ended.append(f"{value}")
        return value

    with pytest.raises(OperatorError, match=r"value 1, .* TimeoutError: no answer within 0\.05 s"):
        called(range(3), slow, timeout=timedelta(seconds=0.05))
    assert "1" in ended


def test_a_call_is_repeated_as_often_as_it_may_be_and_counted() -> None:
    attempts: dict[int, int] = {}

    async def flaky(value: int) -> int:
        attempts[value] = attempts.get(value, 0) + 1
        if attempts[value] <= value:
            raise TimeoutError(f"attempt {attempts[value]}")
        return value

    assert called(range(3), flaky, retry=Retry(first=0)) == [0, 1, 2]
    assert attempts == {0: 1, 1: 2, 2: 3}
    attempts.clear()
    with pytest.raises(OperatorError, match="value 3, timestamp 3: TimeoutError: attempt 3"):
        called(range(4), flaky, retry=Retry(first=0))
    attempts.clear()
    with pytest.raises(OperatorError, match="value 1, timestamp 1: TimeoutError: attempt 1"):
        called(range(4), flaky, retry=Retry(first=0, on=(ConnectionError,)))


def test_plain_functions_are_called_in_threads() -> None:
    together, names = threading.Barrier(3, timeout=30), set[str]()

    def plain(value: int) -> int:
        names.add(threading.current_thread().name)
        together.wait()
        return value + 1

    assert called(range(30), plain, threads=3) == [*range(1, 31)]
    assert len(names) == 3
    assert not any(thread.name in names for thread in threading.enumerate()), "they end with the run"


def test_calls_in_threads_have_ended_when_one_has_failed() -> None:
    begun, ended = list[int](), list[int]()

    def fails(value: int) -> int:
        begun.append(value)
        if value == 1:
            next(iter(()))
        time.sleep(0.02)
        ended.append(value)
        return value

    with pytest.raises(OperatorError, match=r"value 1, .*StopIteration"):
        called(range(50), fails, threads=2)
    assert sorted(begun) == sorted([*ended, 1])
    assert len(begun) < 10


def test_a_client_is_closed_when_its_calls_in_threads_have_ended() -> None:
    class Slow:
        begun, ended, closed = threading.Event(), list[int](), list[list[int]]()

        def __call__(self, value: int) -> int:
            if value == 0:
                assert self.begun.wait(30)
                raise ValueError(value)
            self.begun.set()
            time.sleep(0.05)
            self.ended.append(value)
            return value

        def close(self) -> None:
            self.closed.append([*self.ended])

    with pytest.raises(OperatorError, match="value 0, "):
        called(range(2), Slow(), threads=2)
    assert Slow.closed == [[1]]


class Client:
    """A client that notes what happens to it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.loop: Any = None

    async def open(self) -> None:
        await asyncio.sleep(0)
        self.loop = asyncio.get_running_loop()
        self.events.append("open")

    async def __call__(self, value: Any) -> Any:
        assert asyncio.get_running_loop() is self.loop
        if self.events[-1] != "call":
            self.events.append("call")
        if value == "bad" and self.events.count("open") == 1:
            raise ConnectionError("gone")
        return value

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.events.append("close")


def client_of(items: Sequence[Any], **options: Any) -> Client:
    client = Client()

    def build(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("items", ScriptedSource(items))
        keyed = stream.key_distribute("key", lambda msg: msg.value)
        keyed.map_async("call", client).sink("out", VecSink())

    SingleThreadRuntime(build, **options).execute()
    return client


def test_a_client_is_opened_and_closed_once_for_all_workers_of_a_process() -> None:
    assert client_of("abcdef", parallelism=3).events == ["open", "call", "close"]
    assert client_of("").events == [], "nothing is opened without a record"


def test_a_client_is_closed_and_opened_anew_when_a_call_fails() -> None:
    client = Client()
    with pytest.raises(OperatorError, match="ConnectionError: gone"):
        called(["good", "bad"], client)
    assert called(["good", "bad"], client) == ["good", "bad"]
    assert client.events == ["open", "call", "close"] * 2


@pytest.mark.fault("O4")
@pytest.mark.parametrize("method", ["open", "close"])
def test_a_client_that_fails_to_open_or_close_is_named(method: str) -> None:
    class Broken(Client):
        pass

    async def broken(_self: Any) -> None:
        raise OSError("no route")

    setattr(Broken, method, broken)
    with pytest.raises(OperatorError, match=rf"operator 'call' failed at {method}\(\): OSError: no route"):
        called([1], Broken())


async def runs_a_loop(value: int) -> int:
    never = asyncio.sleep(0, value)
    try:
        return asyncio.run(never)
    finally:
        never.close()


async def is_cancelled(value: int) -> int:
    raise asyncio.CancelledError


async def forgets_to_await(value: int) -> Any:
    return asyncio.sleep(0)


async def runs_a_dataflow(value: int) -> Any:
    return called([value], is_cancelled)


class NothingToAwait:
    """An object whose call says that it is asynchronous, and is not."""

    async def __call__(self, value: int) -> int:
        return await value  # type: ignore[misc, no-any-return] # the mistake


@pytest.mark.fault("O3")
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (runs_a_loop, r"RuntimeError: asyncio\.run\(\) cannot be called from a running event loop"),
        (is_cancelled, "CancelledError, though nobody cancelled the call"),
        (forgets_to_await, "it returned a coroutine, which nobody awaits"),
        (runs_a_dataflow, "can't execute a dataflow that calls others"),
        (NothingToAwait(), "object int can't be used in 'await' expression|'int' object can't be awaited"),
    ],
)
def test_mistaken_functions_are_told(function: Any, problem: str) -> None:
    with pytest.raises(OperatorError, match=f"operator 'call' failed at .* value 1, timestamp 0: .*{problem}"):
        called([1], function)


def test_functions_that_return_generators_or_block_are_called_as_others() -> None:
    async def blocks(value: int) -> Any:
        time.sleep(0.001)
        return (each for each in [value])

    found = called(range(5), blocks, timeout=timedelta(minutes=1))
    assert all(isinstance(it, GeneratorType) for it in found)
    assert [next(it) for it in found] == [*range(5)]


@pytest.mark.fault("O3")
@pytest.mark.parametrize("exit_code", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exit_in_a_function_ends_the_run_as_in_map(exit_code: BaseException) -> None:
    async def leaves(value: int) -> int:
        if value == 2:
            raise exit_code
        return value

    with pytest.raises(type(exit_code)):
        called(range(5), leaves)
    assert called([0], leaves) == [0], "the loop continues"


@pytest.mark.fault("O3")
def test_an_exit_in_a_task_of_a_function_leaves_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    async def leaves() -> None:
        raise SystemExit(3)

    async def starts(value: int) -> int:
        await asyncio.wait([asyncio.create_task(leaves())])
        return value

    assert called(range(3), starts) == [0, 1, 2]
    assert "tried to end the process" in caplog.text


@pytest.mark.fault("O2")
def test_a_second_interrupt_cancels_the_calls() -> None:
    ended: list[str] = []

    async def interrupts(value: int) -> int:
        try:
            while True:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(0.3)
        finally:
            ended.append("cancelled")

    with pytest.raises(KeyboardInterrupt):
        called([1], interrupts)
    assert ended == ["cancelled"]


def test_states_after_calls_are_exactly_once() -> None:
    async def called_out(value: int) -> int:
        await asyncio.sleep(0)
        return value * 10

    def build(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("numbers", SingleIteratorSource(()))
        keyed = stream.map_async("call", called_out).key_distribute("key", lambda msg: msg.value % 3)
        again = keyed.map_async("again", called_out, capacity=2, batch=None)
        again.stateful_map("sum", lambda _, value, total: (total + value, total + value), default=int).sink(
            "out", VecSink()
        )

    assert_exactly_once(build, range(8), max_examples=15)
