"""A dead letter, another attempt and a replay have the record as it came, whatever the failed call did to it."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from malflow import DataMessage, OnError, Retry, SingleThreadRuntime
from malflow.failures import Failure, Replay
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.testing import ScriptedSource
from malflow.testing.driven import DrivenRun
from malflow.testing.trial import built
from tests.kit.memory_store import MemoryStore

RETRIED = OnError("dead_letter", retry=Retry(3, first=0, on=(ValueError,)))


@dataclass
class Order:
    """A record of a class."""

    amount: int
    lines: list[int] = field(default_factory=list)


def take(value: Any) -> int:
    """Take the amount out of a record, and fail if it is negative."""
    if isinstance(value, Order):
        amount, value.amount = value.amount, 0
        value.lines.append(amount)
    else:
        value["seen"] = True
        value.setdefault("lines", []).append(1)
        amount = value.pop("amount")
    if amount < 0:
        raise ValueError("negative")
    return int(amount)


async def take_later(value: Any) -> int:
    await asyncio.sleep(0)
    return take(value)


def send(msg: Any, output: Any) -> None:
    output.send(DataMessage(msg.key, take(msg.value), msg.timestamp))


def flag(msg: Any, flags: list[bool]) -> None:
    flags[take(msg.value) % 2] = True


def hold(msg: Any, state: Any, output: Any) -> Any:
    send(msg, output)
    return state


CALLS: dict[str, Any] = {
    "map": lambda s, p: s.map("it", take, on_error=p),
    "map_with_key": lambda s, p: s.map_with_key("it", lambda _, v: take(v), on_error=p),
    "filter": lambda s, p: s.filter("it", take, on_error=p),
    "flat_map": lambda s, p: s.flat_map("it", lambda v: [take(v)], on_error=p),
    "inspect": lambda s, p: s.inspect("it", lambda msg, _: take(msg.value), on_error=p),
    "stateless_op": lambda s, p: s.stateless_op("it", send, on_error=p),
    "split": lambda s, p: s.split("it", flag, 2, on_error=p)[0],
    "key_distribute": lambda s, p: s.key_distribute("it", lambda msg: take(msg.value), on_error=p),
    "event_time": lambda s, p: s.event_time("it", lambda msg: take(msg.value), out_of_orderness=9, on_error=p),
    "stateful_map": lambda s, p: s.stateful_map("it", lambda _, v, n: (take(v), n), int, on_error=p),
    "stateful_op": lambda s, p: s.stateful_op("it", hold, int, on_error=p),
    "ttl_map": lambda s, p: s.ttl_map("it", lambda _k, v, _t, entries: (take(v), entries), on_error=p),
    "map_async": lambda s, p: s.map_async("it", take_later, capacity=2, on_error=p),
    "map_async of lists": lambda s, p: s.map_async("it", lambda vs: [*map(take, vs)], batch=3, threads=1, on_error=p),
}


def records() -> list[Any]:
    return [{"amount": 1}, {"amount": -1}, {"amount": -2, "lines": [0]}, Order(-3, [7])]


def letters_of(name: str, policy: Any, **options: Any) -> list[Any]:
    """Return the dead letters of a run in which an operator takes the amounts."""
    store = FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)

    def build(provider: Any) -> None:
        keyed = provider.new_stream().source("in", ScriptedSource(records())).key_distribute("key", lambda _: 0)
        CALLS[name](keyed, policy).sink("out", VecSink())

    SingleThreadRuntime(build, store, **options).execute()
    return [*dead_letters(store)]


@pytest.mark.parametrize("policy", ["dead_letter", RETRIED], ids=["at once", "after retries"])
@pytest.mark.parametrize("name", CALLS)
def test_a_letter_has_the_record_as_it_came(name: str, policy: Any) -> None:
    if policy is RETRIED and name.startswith("map_async"):
        return  # it has a retry= of its own
    letters = letters_of(name, policy)
    failed = records() if name == "map_async of lists" else records()[1:]
    assert [it.value for it in letters] == failed[-len(letters) :]
    assert len(letters) >= 3
    assert {it.error for it in letters} == {"ValueError"}  # no attempt fails by the damage of the one before


@pytest.mark.parametrize("policy", ["park", lambda failure: "park"], ids=["park", "function"])
def test_a_parked_record_is_as_it_came(policy: Any) -> None:
    assert [it.value for it in letters_of("stateful_map", policy)] == records()[1:]


def test_a_function_of_the_failure_sees_the_record_as_it_came() -> None:
    seen: list[Any] = []

    def decide(failure: Failure) -> Any:
        seen.append(failure.value)
        return "skip"

    letters_of("map", decide)
    assert seen == records()[1:]


@pytest.mark.parametrize("threads", [None, 2])
def test_each_attempt_of_a_call_has_the_record_as_it_came(threads: Any) -> None:
    tries: list[Any] = []
    sink: VecSink[Any, Any, Any] = VecSink()

    def flaky(value: Any) -> Any:
        tries.append(dict(value))
        value.pop("amount")
        value["lines"].append(1)
        if len(tries) < 3:
            raise ValueError("again")
        return value

    async def flaky_later(value: Any) -> Any:
        return flaky(value)

    def build(provider: Any) -> None:
        source = provider.new_stream().source("in", ScriptedSource([{"amount": 1, "lines": []}]))
        retry = Retry(3, first=0, on=(ValueError,))
        source.map_async("it", flaky if threads else flaky_later, retry=retry, threads=threads).sink("out", sink)

    SingleThreadRuntime(build).execute()
    assert [set(it) for it in tries] == [{"amount", "lines"}] * 3
    assert sink.values == [{"lines": [1]}]


@pytest.mark.parametrize("name", ["filter", "inspect", "key_distribute", "event_time", "split"])
def test_a_record_that_passes_is_that_of_the_last_attempt(name: str) -> None:
    tries: list[int] = []
    sink: VecSink[Any, Any, Any] = VecSink()

    def mark(value: Any) -> int:
        tries.append(1)
        value["marks"].append(len(tries))
        if len(tries) < 3:
            raise ValueError("again")
        return 1

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("in", ScriptedSource([{"marks": []}]))
        made: dict[str, Any] = {
            "filter": lambda: stream.filter("it", mark, on_error=RETRIED),
            "inspect": lambda: stream.inspect("it", lambda msg, _: mark(msg.value), on_error=RETRIED),
            "key_distribute": lambda: stream.key_distribute("it", lambda msg: mark(msg.value), on_error=RETRIED),
            "event_time": lambda: stream.event_time(
                "it", lambda msg: mark(msg.value), out_of_orderness=9, on_error=RETRIED
            ),
            "split": lambda: stream.split("it", to_first, 2, on_error=RETRIED)[0],
        }
        made[name]().sink("out", sink)

    def to_first(msg: Any, flags: list[bool]) -> None:
        flags[0] = bool(mark(msg.value))

    SingleThreadRuntime(build).execute()
    assert sink.values == [{"marks": [3]}]


def test_a_letter_that_fails_again_is_still_the_record() -> None:
    store = FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)

    def build(provider: Any) -> None:
        keyed = provider.new_stream().source("in", ScriptedSource([{"amount": -1}, {"amount": -2}]))
        keyed.map("it", take, on_error="dead_letter").sink("out", VecSink())

    run = DrivenRun(built(build), parallelism=1, persistence=store)
    run.resume()
    run.tick()
    run.tick()
    for _ in range(2):
        tick = run.ticks.begin(polls=False, replays=(Replay("it"),))
        run.ticks.end(tick, run.run(tick))
    run.snapshots.take(ending=True)
    run.close()
    assert [(it.value, it.attempts) for it in dead_letters(store)] == [({"amount": -1}, 3), ({"amount": -2}, 3)]


def test_a_value_that_cannot_be_copied_is_passed_as_it_is() -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    locks = [threading.Lock()]

    def build(provider: Any) -> None:
        numbers = provider.new_stream().source("in", ScriptedSource([0])).map("lock", lambda n: locks[n])
        numbers.filter("it", lambda lock: not lock.locked(), on_error="dead_letter").sink("out", sink)

    SingleThreadRuntime(build).execute()
    assert sink.values == locks


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_debug_finds_a_function_that_changes_a_record_and_fails(policy: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "malflow.runtime"):
        letters_of("map", policy, debug=True)
    (told,) = [it.getMessage() for it in caplog.records if "before it failed" in it.getMessage()]
    assert "operator 'it'" in told
    assert "it was {'amount': -1}, and is {'lines': [1], 'seen': True}" in told
