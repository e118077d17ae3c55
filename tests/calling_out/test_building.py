"""Arguments of `map_async` that are refused when the dataflow is built."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from malflow import Breaker, GraphError, Rate, Retry, StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.records.batch import BATCH_SIZE
from malflow.sinks import VecSink
from malflow.testing import ScriptedSource


async def answer(value: Any) -> Any:
    return value


async def answer_both(first: Any, second: Any) -> Any:
    return first, second


async def several(value: Any) -> AsyncIterator[Any]:
    yield value


def generated(value: Any) -> Iterator[Any]:
    yield value


class Client:
    """A client whose method needs a place."""

    async def __call__(self, value: Any) -> Any:
        return value

    def open(self, place: str) -> None:
        raise AssertionError(place)


LETTERS = Breaker(then="dead_letter")


def least_batch(function: Any = answer, **options: Any) -> int:
    graph = Graph()
    stream: Any = StreamProvider(graph).new_stream().source("numbers", ScriptedSource([1]))
    stream.map_async("call", function, **options).sink("out", VecSink())
    return compile_graph(graph).least_batch


@pytest.mark.parametrize(
    ("function", "options", "problem"),
    [
        (len, {}, r"needs an asynchronous function; .*len.* is a plain function; .* or add threads=8 to call"),
        (several, {}, "several .* is an asynchronous generator function"),
        (generated, {}, "generated .* is a generator function"),
        (answer, {"threads": 8}, "calls a plain function in threads; answer .* is asynchronous; leave threads= out"),
        (generated, {"threads": 8}, "got a generator function, generated"),
        (Client, {}, r"needs an object; got the class Client; write Client\(\.\.\.\)"),
        ("call", {}, "needs an asynchronous function; got 'call'"),
        (answer_both, {}, r"calls its function as function\(value\), but answer_both .* takes other arguments"),
        (Client(), {}, r"calls open\(\) of its function without arguments"),
        (answer, {"capacity": 0}, "capacity must be a whole number, at least 1; got 0"),
        (answer, {"batch": True}, "batch must be a whole number, at least 1; got True"),
        (len, {"threads": -1}, "threads must be a whole number, at least 1; got -1"),
        (answer, {"timeout": "soon"}, r"timeout must be a time above zero, such as '10s', .* or None; got 'soon'"),
        (len, {"threads": 2, "timeout": timedelta(seconds=1)}, "can't stop a thread after a timeout"),
        (answer, {"retry": 3}, r"needs retry=Retry\(\.\.\.\), or None; got 3"),
        (answer, {"rate": 50}, r"needs rate=Rate\(\.\.\.\), or None; got 50"),
        (answer, {"breaker": Breaker()}, r"needs retry=Retry\(attempts=\.\.\., on=\.\.\.\) for its breaker"),
        (answer, {"breaker": LETTERS, "retry": Retry()}, "has a breaker .* and so needs on_error='dead_letter'"),
        (answer, {"breaker": LETTERS, "retry": Retry(), "on_error": "skip"}, "has a breaker .* and so needs on_error="),
        (answer, {"on_error": "park_it"}, r"can't have this policy: on_error= takes 'fail', .*; got 'park_it'"),
    ],
)
def test_a_mistake_is_told_when_the_dataflow_is_built(function: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(GraphError, match=f"operator 'call' .*{problem}") as error:
        least_batch(function, **options)
    assert "test_building.py" in str(error.value)


def test_sources_poll_records_for_several_times_the_capacity() -> None:
    assert least_batch() == 400
    assert least_batch(partial(answer), capacity=3) == 12
    assert least_batch(capacity=3, batch=64) == 12 * 64
    assert least_batch(capacity=1_000, batch=64) == BATCH_SIZE
    assert least_batch(len, threads=8) == 32
    assert least_batch(rate=Rate(50.5)) == 51, "no more than may begin in a second"
