"""The garbage collector runs less often while records flow, and as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Barrier, Thread
from typing import Any

import pytest

from malflow import SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield before
    gc.set_threshold(*before)


def seen_in_a_run(items: Any = range(1)) -> list[Any]:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("items", SingleIteratorSource(items))
        stream.map("thresholds", lambda _: gc.get_threshold()).sink("sink", sink)

    SingleThreadRuntime(build).execute()
    return list(sink.values)


def test_collections_are_rare_in_a_run() -> None:
    assert seen_in_a_run() == [(50_000, 10, 10)]
    assert gc.get_threshold() == (700, 10, 10)


def test_thresholds_of_the_user_are_left_alone() -> None:
    gc.set_threshold(123, 4, 5)
    assert seen_in_a_run() == [(123, 4, 5)]
    assert gc.get_threshold() == (123, 4, 5)


def test_thresholds_that_are_set_in_a_run_stay() -> None:
    def items() -> Iterator[int]:
        gc.set_threshold(99, 9, 9)
        yield 1

    assert seen_in_a_run(items()) == [(99, 9, 9)]
    assert gc.get_threshold() == (99, 9, 9)


def test_runs_that_overlap_restore_the_thresholds_once() -> None:
    barrier = Barrier(2)

    def items() -> Iterator[int]:
        barrier.wait(30)
        yield 1
        barrier.wait(30)

    found: list[Any] = []
    threads = [Thread(target=lambda: found.extend(seen_in_a_run(items()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(50_000, 10, 10)] * 2
    assert gc.get_threshold() == (700, 10, 10)
