"""Functions that forget their result are refused when the dataflow is built."""

from __future__ import annotations

import functools
import logging
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pytest

from malflow import GraphError, SingleThreadRuntime, StatefulLogic, StreamProvider, agg
from malflow.patterns import step
from malflow.sinks import JsonLinesSink, VecSink
from malflow.windows import tumbling
from tests.conformance.dataflow import sis


def of_none() -> None:
    print()


def of_one(value: Any) -> None:
    print(value)


def of_two(one: Any, other: Any) -> None:
    print(one, other)


def of_three(one: Any, two: Any, three: Any) -> None:
    print(one, two, three)


def of_four(one: Any, two: Any, three: Any, four: Any) -> None:
    print(one, two, three, four)


class Counter(StatefulLogic[Any, Any, Any, Any, Any]):
    """A logic that updates its state, and forgets to return it."""

    def on_data(self, msg: Any, state: Any, output: Any) -> None:
        state.append(msg.value)


def on_time(stream: Any) -> Any:
    return stream.generate_epochs("epochs", lambda msg, epoch: msg.timestamp)[0].key_distribute("key", lambda msg: 1)


USES: dict[str, Callable[[Any, Any], object]] = {
    "map": lambda stream, keyed: stream.map("op", of_one),
    "filter": lambda stream, keyed: stream.filter("op", of_one),
    "filter_map": lambda stream, keyed: stream.filter_map("op", of_one),
    "flat_map": lambda stream, keyed: stream.flat_map("op", of_one),
    "sample": lambda stream, keyed: stream.sample("op", 0.5, by=of_one),
    "key_local": lambda stream, keyed: stream.key_local("op", of_one),
    "key_distribute": lambda stream, keyed: stream.key_distribute("op", of_one),
    "partitioner": lambda stream, keyed: stream.key_distribute("op", lambda msg: 1, of_two),
    "assign_timestamps": lambda stream, keyed: stream.assign_timestamps("op", of_one),
    "generate_epochs": lambda stream, keyed: stream.generate_epochs("op", of_two),
    "stateful_map": lambda stream, keyed: keyed.stateful_map("op", of_three),
    "default": lambda stream, keyed: keyed.stateful_op("op", lambda msg, state, output: state, of_none),
    "migrate": lambda stream, keyed: keyed.stateful_op("op", lambda msg, state, output: state, migrate=of_two),
    "stateful_op": lambda stream, keyed: keyed.stateful_op("op", of_three),
    "on_data": lambda stream, keyed: keyed.stateful_op("op", Counter(), default=list),
    "ttl_map": lambda stream, keyed: keyed.ttl_map("op", of_four),
    "distinct": lambda stream, keyed: keyed.distinct("op", of_one, within=3),
    "changes": lambda stream, keyed: keyed.changes("op", of_one),
    "sort": lambda stream, keyed: keyed.sort("op", of_one),
    "asof_join": lambda stream, keyed: keyed.asof_join("op", keyed, tie=of_one),
    "ties of a match": lambda stream, keyed: keyed.match("op", step("one"), ties=of_one),
}


@pytest.mark.parametrize("use", USES)
def test_a_function_without_a_return_is_refused_by(use: str) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", sis([1, 2]))
        USES[use](stream, on_time(stream))

    with pytest.raises(
        GraphError, match=r"must return a value; \S+ \(.*test_forgotten_returns.py:\d+\) has no 're"
    ) as error:
        SingleThreadRuntime(build_dataflow).execute()
    assert error.value.operator == "op"
    assert "'return None' if that is meant" in str(error.value)
    assert re.search(r"test_forgotten_returns\.py:\d+$", error.value.location or "")


@pytest.mark.parametrize(
    "use",
    [
        lambda: agg.sum(of_one),
        lambda: agg.count(of_one),
        lambda: agg.fold(of_none, lambda one, value: one),
        lambda: agg.fold(list, of_two),
        lambda: agg.fold(list, lambda one, value: one, merge=of_two),
        lambda: agg.fold(list, lambda one, value: one, result=of_one),
        lambda: step("one", of_one),
        lambda: step("one", given=of_two),
        lambda: JsonLinesSink("out", formatter=of_one),
    ],
)
def test_a_function_without_a_return_is_refused_outside_of_streams(use: Callable[[], object]) -> None:
    with pytest.raises(GraphError, match="no 'return' with"):
        use()


class Alarm(StatefulLogic[Any, Any, Any, Any, Any]):
    """A logic whose timer drops the key."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        output.wake(msg.timestamp + 1)
        return msg.value

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> None:
        print(key, at, state)


class Stateless(StatefulLogic[Any, Any, Any, Any, Any]):
    """A logic that keeps nothing, and says so."""

    def on_data(self, msg: Any, state: Any, output: Any) -> None:
        return None


def test_a_function_whose_result_is_not_used_needs_none() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", sis([1, 2]))
        stream.inspect("look", of_two)
        stream.inspect_frontier("look at time", of_two)
        stream.split("split", of_two, 2)
        stream.stateless_op("drop", of_two)
        keyed = on_time(stream)
        keyed.stateful_op("alarm", Alarm())
        keyed.stateful_op("nothing", Stateless())

    SingleThreadRuntime(build_dataflow).execute()


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "mapper(value)": lambda stream, keyed: stream.map("op", of_two),
    "key_fn(msg)": lambda stream, keyed: stream.key_distribute("op", lambda key, value: value),
    "mapper(key, value, state)": lambda stream, keyed: keyed.stateful_map("op", of_two),
    "on_data(msg, state, output)": lambda stream, keyed: keyed.stateful_op("op", Short()),
    "logic(msg, state, output)": lambda stream, keyed: keyed.stateful_op("op", lambda msg, state: 1),
    "default()": lambda stream, keyed: keyed.stateful_map("op", lambda key, value, state: (value, 1), default=of_one),
}


class Short:
    """A logic that lacks an argument."""

    def on_data(self, msg: Any, state: Any) -> Any:
        return state


@pytest.mark.parametrize("called", CALLS)
def test_a_function_of_other_arguments_is_refused(called: str) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", sis([1, 2]))
        CALLS[called](stream, on_time(stream))

    with pytest.raises(GraphError, match=rf"operator 'op' calls .*{re.escape(called)}.*takes other arguments"):
        SingleThreadRuntime(build_dataflow).execute()


def drops_on_one_path(msg: Any, state: Any, output: Any) -> Any:  # noqa: RET503 - the fault
    if msg.value > 1:
        return msg.value


def test_debug_warns_of_a_path_that_forgets_the_state(caplog: pytest.LogCaptureFixture) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", sis([1, 2]))
        on_time(stream).stateful_op("op", drops_on_one_path).sink("sink", VecSink())

    with caplog.at_level(logging.WARNING, "malflow.runtime"):
        SingleThreadRuntime(build_dataflow).execute()
        assert not caplog.messages
        SingleThreadRuntime(build_dataflow, debug=True).execute()
    (message,) = caplog.messages
    assert re.match(r"operator 'op': drops_on_one_path \(.*\) has a path that ends without a 'return'", message)


def test_windows_are_built_of_functions_that_return() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        keyed = on_time(provider.new_stream().source("source", sis([1, 2])))
        keyed.window(tumbling(2)).aggregate("op", agg.sum(), migrate=of_two)

    with pytest.raises(GraphError, match="migrate must return a value"):
        SingleThreadRuntime(build_dataflow).execute()


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(value: Any) -> Any:
        return function(value, "more")

    return wrapper


class Callables:
    """Functions of each kind that take a value."""

    def __call__(self, value: Any) -> Any:
        return value

    @staticmethod
    def static(value: Any) -> Any:
        return value

    @classmethod
    def of_class(cls, value: Any) -> Any:
        return value


@pytest.mark.parametrize(
    "function",
    [
        str,
        "{}".format,
        Callables(),
        Callables.static,
        Callables.__dict__["static"],
        Callables.of_class,
        functools.partial(pow, 2),
        functools.lru_cache(lambda value: value),
        functools.singledispatch(lambda value: value),
        decorated(lambda value, other: (value, other)),
        operator.methodcaller("bit_length"),
        Decimal,
        Mock(),
    ],
)
def test_anything_callable_with_a_value_is_taken(function: Any) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", sis([1, 2]))
        stream.map("op", function).sink("sink", VecSink())

    SingleThreadRuntime(build_dataflow).execute()


def test_operator_after_a_sink_and_one_without_a_name_are_explained() -> None:
    def after(provider: Any) -> None:
        provider.new_stream().source("n", sis([1])).sink("out", VecSink()).map("x", str)

    def unnamed(provider: Any) -> None:
        provider.new_stream().source(sis([1]))

    with pytest.raises(AttributeError) as caught:
        SingleThreadRuntime(after).execute()
    assert ".sink() ends a stream and returns None; call .map() before it" in caught.value.__notes__[0]
    with pytest.raises(TypeError) as named:
        SingleThreadRuntime(unnamed).execute()
    assert 'each operator has a name, which comes first: .source("name", ...)' in named.value.__notes__[0]
