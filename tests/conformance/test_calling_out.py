"""Calls of functions that wait, on every runtime."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from malflow import OperatorError, Retry, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from tests.conformance.dataflow import sis
from tests.kit.log import Log


class Client:
    """A client that notes in which process it is opened and closed."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.is_open = False

    async def open(self) -> None:
        self.is_open = True
        self.log.append("open")

    async def __call__(self, value: int) -> int:
        assert self.is_open
        await asyncio.sleep(0.001 * (value % 3))
        return 100 // value

    async def close(self) -> None:
        self.is_open = False
        self.log.append("close")


def values_and_counts(
    runtime: Any, items: list[int], log: Log, *store: Any
) -> tuple[dict[int, list[int]], dict[str, int]]:
    sink: VecSink[int, int, Any] = VecSink()
    client = Client(log)

    def build(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("numbers", sis(items)).key_distribute("key", lambda msg: msg.value % 4)
        retry = Retry(attempts=2, first=0, on=(ZeroDivisionError,))
        guarded: dict[str, Any] = {"on_error": "dead_letter", "retry": retry} if store else {}
        keyed.map_async("call", client, capacity=3, **guarded).sink("out", sink)

    run = runtime(build, *store).start()
    run.await_termination()
    by_key: dict[int, list[int]] = {}
    for message in sink:
        by_key.setdefault(message.key, []).append(message.value)
    return by_key, dict(run.progress.counts["call"])


def test_calls_keep_keys_and_order_and_close_their_client(any_parallelism: Any, log: Log) -> None:
    items = [*range(1, 60)]
    by_key, counts = values_and_counts(any_parallelism, items, log)
    assert by_key == {key: [100 // n for n in items if n % 4 == key] for key in range(4)}
    assert counts == {"calls": len(items), "retried": 0, "timed_out": 0, "opened": 0}
    events = [*log]
    assert events.count("open") == events.count("close") > 0
    assert events[0] == "open"


@pytest.mark.fault("O1")
def test_a_call_that_fails_ends_the_run_and_closes_its_client(any_parallelism: Any, log: Log) -> None:
    with pytest.raises(OperatorError, match=r"'call' failed at key 0, value 0, .*ZeroDivisionError") as error:
        values_and_counts(any_parallelism, [1, 2, 3, 0, 5], log)
    assert (error.value.operator, error.value.key, error.value.value) == ("call", 0, 0)
    assert [*log].count("open") == [*log].count("close")


@pytest.mark.fault("O9")
def test_a_call_that_fails_becomes_a_letter_and_the_others_continue(
    any_parallelism: Any, log: Log, store: FsspecBackend
) -> None:
    items = [1, 0, 2, 4, 0, 3, 0]
    by_key, counts = values_and_counts(any_parallelism, items, log, store)
    assert by_key == {1: [100], 2: [50], 0: [25], 3: [33]}
    assert counts == {
        "calls": 7, "retried": 3, "timed_out": 0, "opened": 0,
        "failed": 3, "skipped": 0, "letters": 3, "dropped": 0, "kept": 3, "parked": 0,
    }  # fmt: skip
    letters = list(dead_letters(store))
    assert [(it.key, it.value, it.timestamp, it.error, it.attempts) for it in letters] == [
        (0, 0, at, "ZeroDivisionError", 2) for at in (1, 4, 6)
    ]
