"""Failed calls of a `map_async` under policies that skip them or keep them as dead letters."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import (
    Breaker,
    Budget,
    DeadLetter,
    Failure,
    GraphError,
    OnError,
    OperatorError,
    Retry,
    SingleThreadRuntime,
    StreamProvider,
)
from malflow.engine.compiler import compile_graph, with_policies
from malflow.failures import Replayed
from malflow.graph import Graph
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource, assert_exactly_once
from tests.kit.memory_store import MemoryStore
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> FsspecBackend:
    """Return a backend in its own folder."""
    return FsspecBackend(str(tmp_path))


async def parse(text: str) -> int:
    """Fail for texts that are not numbers."""
    await asyncio.sleep(0)
    return int(text)


def called(items: Sequence[Any], function: Any, store: Any = None, **options: Any) -> tuple[list[Any], dict[str, int]]:
    """Return the results of the calls and the operator's counts."""
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("items", ScriptedSource(items))
        stream.map_async("call", function, **options).sink("out", sink)

    runtime = SingleThreadRuntime(build, *([] if store is None else [store]))
    runtime.execute()
    return sink.values, dict(runtime.progress.counts["call"])


def letters(store: FsspecBackend) -> list[tuple[Any, str, int]]:
    return [(it.value, it.error, it.attempts) for it in dead_letters(store)]


def counts(**changed: int) -> dict[str, int]:
    names = ("calls", "retried", "timed_out", "opened", "failed", "skipped", "letters", "dropped", "kept", "parked")
    return dict.fromkeys(names, 0) | changed


@pytest.mark.fault("O9")
def test_a_failed_call_becomes_a_letter_with_its_attempts(store: FsspecBackend) -> None:
    async def answer(text: str) -> str:
        if text == "late":
            raise TimeoutError("no answer")
        if text == "never":
            await asyncio.Event().wait()
        if text == "bad":
            raise ValueError(f"bad {object()}")
        return text.upper()

    found, counted = called(
        ["a", "late", "b", "bad", "never", "c"],
        answer,
        store,
        timeout=timedelta(seconds=0.02),
        retry=Retry(attempts=3, first=0),
        on_error="dead_letter",
    )
    assert found == ["A", "B", "C"]
    assert letters(store) == [("late", "TimeoutError", 3), ("bad", "ValueError", 1), ("never", "TimeoutError", 3)]
    assert counted == counts(calls=6, retried=4, timed_out=3, failed=3, letters=3, kept=3)
    late, bad, never = dead_letters(store)
    assert never.message == "no answer within 0.02 s"
    assert bad.message == "bad <object object at 0x...>"
    assert bad.place is not None
    assert f"answer ({__file__}:" in bad.place
    assert late.trace.splitlines()[0].startswith(f'  File "{__file__}"')


def by_parity(failure: Failure) -> Any:
    return "skip" if failure.value[0] % 2 else "dead_letter"


ITEMS = st.lists(st.tuples(st.integers(0, 12), st.booleans()) | st.just(PAUSE), max_size=16)


@given(
    items=st.fixed_dictionaries({"a": ITEMS, "b": ITEMS}),
    parallelism=st.integers(1, 3),
    debug=st.booleans(),
    capacity=st.integers(1, 5),
    turns=st.lists(st.integers(0, 3), min_size=1),
    on_error=st.sampled_from(
        ["skip", "dead_letter", lambda failure: "skip" if failure.value[0] % 2 else "dead_letter"]
    ),
)
def test_order_epochs_and_letters_are_those_of_map(
    items: Any, parallelism: int, debug: bool, capacity: int, turns: list[int], on_error: Any
) -> None:
    def checked(item: Any) -> Any:
        if item[1]:
            raise ValueError(item)
        return item

    async def waited(item: Any) -> Any:
        for _ in range(turns[item[0] % len(turns)]):
            await asyncio.sleep(0)
        return checked(item)

    def run(call: Any) -> tuple[Any, ...]:
        sink, taken, epochs = VecSink[Any, Any, Any](), VecSink[Any, DeadLetter, Any](), list[Any]()

        def build(provider: StreamProvider) -> None:
            numbers: Any = provider.new_stream().source("items", ScriptedSource(items))
            numbers = numbers.event_time("time", lambda msg: msg.value[0], out_of_orderness=3)
            keyed = numbers.key_distribute("key", lambda msg: msg.value[0] % 3)
            results = call(keyed)
            results.inspect_frontier("epochs", lambda epoch, context: epochs.append((context.worker_id, epoch)))
            results.map_async("equal ticks", waited, capacity=capacity).sink("out", sink)
            provider.on_dead_letters(lambda stream: stream.sink("letters", taken), ["call"])

        runtime = SingleThreadRuntime(build, parallelism=parallelism, debug=debug)
        runtime.execute()
        counted = {name: runtime.progress.counts["call"][name] for name in ("failed", "skipped", "letters", "kept")}
        return list(sink), epochs, [(it.id, it.key, it.value, it.timestamp, it.message) for it in taken.values], counted

    expected = run(lambda stream: stream.map("call", checked, on_error=on_error))
    assert run(lambda stream: stream.map_async("call", waited, capacity=capacity, on_error=on_error)) == expected


@pytest.mark.fault("O9")
@given(
    items=st.fixed_dictionaries({"a": ITEMS, "b": ITEMS, "c": ITEMS}),
    parallelism=st.integers(1, 3),
    debug=st.booleans(),
    capacity=st.integers(1, 5),
)
def test_parked_keys_are_those_of_map(items: Any, parallelism: int, debug: bool, capacity: int) -> None:
    def checked(item: Any) -> Any:
        if item[1]:
            raise ValueError(item)
        return item

    async def waited(item: Any) -> Any:
        await asyncio.sleep(0)
        return checked(item)

    def run(call: Any) -> tuple[list[Any], dict[Any, list[Any]]]:
        sink, store = VecSink[Any, Any, Any](), FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)

        def build(provider: StreamProvider) -> None:
            numbers: Any = provider.new_stream().source("items", ScriptedSource(items))
            results = call(numbers.key_distribute("key", lambda msg: msg.value[0] % 3))
            results.map_async("equal ticks", waited, capacity=capacity).sink("out", sink)

        SingleThreadRuntime(build, store, parallelism=parallelism, debug=debug).execute()
        waiting: dict[Any, list[Any]] = {}
        for letter in dead_letters(store):
            waiting.setdefault(letter.key, []).append((letter.value, letter.error, letter.is_parked))
        return list(sink), waiting

    expected = run(lambda stream: stream.map("call", checked, on_error="park"))
    assert run(lambda stream: stream.map_async("call", waited, capacity=capacity, on_error="park")) == expected


@given(
    faults=st.lists(st.integers(0, 4), max_size=20),
    batch=st.integers(1, 5),
    attempts=st.integers(1, 3),
    capacity=st.integers(1, 3),
)
def test_a_list_that_fails_has_failed_for_each_of_its_values(
    faults: list[int], batch: int, attempts: int, capacity: int
) -> None:
    tried: Counter[tuple[Any, ...]] = Counter()

    async def answer(values: list[tuple[int, int]]) -> list[int]:
        tried[tuple(values)] += 1
        await asyncio.sleep(0)
        if tried[tuple(values)] <= max(fault for _, fault in values):
            raise TimeoutError
        return [number for number, _ in values]

    items = [*enumerate(faults)]
    lists = [items[at : at + batch] for at in range(0, len(items), batch)]
    sink, taken = VecSink[Any, Any, Any](), VecSink[Any, DeadLetter, Any]()

    def build(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("items", SingleIteratorSource(items))
        retry = Retry(attempts, first=0)
        stream.map_async("call", answer, capacity=capacity, batch=batch, retry=retry, on_error="dead_letter").sink(
            "out", sink
        )
        provider.on_dead_letters(lambda stream: stream.sink("letters", taken))

    SingleThreadRuntime(build).execute()
    bad = [any(fault >= attempts for _, fault in them) for them in lists]
    good = [number for them, is_bad in zip(lists, bad, strict=True) if not is_bad for number, _ in them]
    assert sink.values == good
    expected = [(it, attempts) for them, is_bad in zip(lists, bad, strict=True) if is_bad for it in them]
    assert [(it.value, it.attempts) for it in taken.values] == expected


@pytest.mark.fault("O9")
@pytest.mark.parametrize(("then", "answered"), [("fail", "skip"), ("dead_letter", "fail")])
def test_calls_that_an_open_breaker_holds_back_become_letters(
    store: FsspecBackend, then: Any, answered: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []
    decided: list[str] = []

    async def down(value: int) -> int:
        asked.append(value)
        raise ConnectionError("down")

    def decide(failure: Failure) -> Any:
        decided.append(type(failure.error).__name__)
        return "skip" if decided[-1] == "ConnectionError" else answered

    found, counted = called(
        range(10),
        down,
        store,
        capacity=1,
        retry=Retry(attempts=1, on=(ConnectionError,)),
        breaker=Breaker(failures=3, of=3, then=then),
        on_error=decide,
    )
    assert (found, asked) == ([], [0, 1, 2])
    if then == "fail":
        assert decided == ["ConnectionError"] * 3 + ["BreakerOpen"] * 7
        assert counted == counts(calls=10, opened=1, failed=10, skipped=10)
        assert "calls fail" in caplog.text
        return
    assert decided == ["ConnectionError"] * 3, "what is held back is a letter without a question"
    assert letters(store) == [(value, "BreakerOpen", 0) for value in range(3, 10)]
    assert counted == counts(calls=10, opened=1, failed=10, skipped=3, letters=7, kept=7)
    assert "calls become dead letters" in caplog.text


def test_a_function_may_still_end_the_run_at_the_first_failure() -> None:
    ended: list[int] = []

    async def fails(value: int) -> int:
        await asyncio.sleep(0)
        ended.append(value)
        raise ValueError(value)

    def decide(failure: Failure) -> Any:
        return "fail" if failure.value in (2, 3) else "skip"

    with pytest.raises(OperatorError, match=r"'call' failed at .* value 2, timestamp 2: ValueError: 2; in .*fails"):
        called(range(5), fails, on_error=decide)
    assert ended == [*range(5)], "it decides when all calls have ended"


@pytest.mark.parametrize("error", [MemoryError("all gone"), GraphError("mine"), KeyboardInterrupt("exit")])
def test_no_policy_decides_about_memory_errors_of_malflow_and_exits(error: BaseException) -> None:
    cancelled: list[int] = []

    async def fails(value: int) -> int:
        try:
            await asyncio.sleep(0 if value == 2 else 3600 * (value > 2))
        except asyncio.CancelledError:
            cancelled.append(value)
            raise
        if value == 2:
            raise error
        return value

    expected: Any = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else OperatorError
    with pytest.raises(expected, match=str(error)):
        called(range(5), fails, on_error="skip")
    assert cancelled == [3, 4]


@pytest.mark.fault("O9")
def test_a_call_that_is_cancelled_from_inside_has_failed(store: FsspecBackend) -> None:
    async def cancelled(value: int) -> int:
        if value == 1:
            raise asyncio.CancelledError
        return value

    assert called(range(3), cancelled, store, on_error="dead_letter")[0] == [0, 2]
    (letter,) = dead_letters(store)
    assert letter.message == "CancelledError, though nobody cancelled the call"


@pytest.mark.fault("N10")
def test_failed_calls_count_against_a_budget() -> None:
    policy = OnError("skip", budget=Budget(0.2, least=10))
    assert len(called(["x", "y", *"12345678"], parse, on_error=policy)[0]) == 8
    with pytest.raises(OperatorError, match=r"'call' failed at 3 of the last 10 records, more than the 20\.0%"):
        called(["x", "y", "z", *"1234567"], parse, on_error=policy)


@pytest.mark.fault("N5")
def test_a_full_store_ends_the_run_and_keeps_the_last_snapshot(store: FsspecBackend) -> None:
    policy = OnError("dead_letter", keep=2)
    called(["x", "y"], parse, store, on_error=policy)
    with pytest.raises(OperatorError, match="it keeps as many dead letters as it may: 2"):
        called(["x", "y", "1", "z"], parse, store, on_error=policy)
    assert [value for value, _, _ in letters(store)] == ["x", "y"]


def test_a_configuration_gives_calls_a_policy() -> None:
    graph, sink = Graph(), VecSink[Any, Any, Any]()
    stream: Any = StreamProvider(graph).new_stream().source("items", SingleIteratorSource(["1", "x"]))
    stream.map_async("call", parse).sink("out", sink)
    program = compile_graph(graph)
    (node,) = [vertex.node for vertex in program.vertices if vertex.node.name == "call"]
    assert program.policy(node) is None
    changed = with_policies(program, {"call": OnError("skip")})
    assert changed.policy(node) == OnError("skip")
    assert set(changed.counts(node).counters) > set(program.counts(node).counters)


def replayed(store: FsspecBackend, **options: Any) -> tuple[list[int], list[list[str]], int]:
    """Replay some letters; return the results, the calls and the maximum number under way at once."""
    sink, calls = VecSink[Any, Any, Any](), list[list[str]]()
    state = {"mended": False, "now": 0, "most": 0}

    async def parse_all(texts: Any) -> Any:
        state["now"] += 1
        state["most"] = max(state["most"], state["now"])
        calls.append(texts)
        await asyncio.sleep(0.001)
        state["now"] -= 1
        if "batch" in options:
            return [length_of(text) for text in texts]
        return length_of(texts)

    def length_of(text: str) -> int:
        return int(text) if text.isdigit() or not state["mended"] or text == "bad" else len(text)

    def build(provider: StreamProvider) -> None:
        items = ["1", "x", "xy", "bad", "2", "xyz", *[PAUSE] * 10_000]
        stream: Any = provider.new_stream().source("items", ScriptedSource(items))
        keyed = stream.key_distribute("key", lambda msg: len(msg.value))
        keyed.map_async("call", parse_all, on_error="dead_letter", **options).sink("out", sink)

    handle = SingleThreadRuntime(build, store).start()
    try:
        wait_until(lambda: handle.progress.records.get("call") == 6, 60)
        calls.clear()
        sink.values.clear()
        state.update(mended=True, most=0)
        failed = handle.progress.counts["call"]["failed"]
        assert handle.replay("call").result(60) == Replayed(done=failed)
    finally:
        handle.stop()
        handle.await_termination(60)
    return sink.values, calls, state["most"]


@pytest.mark.fault("O10")
def test_replayed_letters_are_called_together_and_count_their_attempts(store: FsspecBackend) -> None:
    found, calls, most = replayed(store, retry=Retry(attempts=2, first=0, on=(ValueError,)))
    assert found[-3:] == [1, 2, 3]
    assert most == 4
    assert sorted(map(str, calls)) == ["bad", "bad", "x", "xy", "xyz"]
    assert letters(store) == [("bad", "ValueError", 4)]


@pytest.mark.fault("O10")
def test_replayed_letters_of_lists_are_called_alone(store: FsspecBackend) -> None:
    found, calls, most = replayed(store, batch=8)
    assert most == 6
    assert sorted(found[-5:]) == [1, 1, 2, 2, 3]
    assert [len(texts) for texts in calls] == [1] * 6, "the bad one harms no other"
    assert letters(store) == [("bad", "ValueError", 2)]


def test_letters_and_states_after_failed_calls_are_exactly_once() -> None:
    async def tens(value: int) -> int:
        await asyncio.sleep(0)
        return 10 // (value % 4) * 0 + value * 10

    def build(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("numbers", SingleIteratorSource(()))
        keyed = stream.map_async("call", tens, on_error="dead_letter").key_distribute("key", lambda msg: msg.value % 3)
        again = keyed.map_async("again", tens, capacity=2, on_error="skip")
        again.stateful_map("sum", lambda _, value, total: (total + value, total + value), default=int).sink(
            "out", VecSink()
        )

    assert_exactly_once(build, range(8), max_examples=10)


@pytest.mark.fault("O4")
def test_a_client_that_cannot_be_opened_ends_the_run_under_any_policy(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        async def open(self) -> None:
            raise OSError("no route")

        async def __call__(self, value: Any) -> Any:
            raise AssertionError

    with caplog.at_level(logging.WARNING), pytest.raises(OperatorError, match=r"'call' failed at open\(\): OSError"):
        called([1], Broken(), on_error="skip")
