"""Functions that mistake a message for its value, or a value for the message; missing fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import pytest

from malflow import GraphError, OperatorError, SingleThreadRuntime, StreamProvider, agg
from malflow.connectors.codecs import JsonEncoder
from malflow.connectors.kafka import KafkaSink
from malflow.patterns import step
from malflow.sinks import StdOutSink, VecSink
from malflow.windows import tumbling
from tests.conformance.dataflow import sis


@dataclass
class Order:
    town: str = "Ulm"
    delay: int = 3


class Row(NamedTuple):
    town: str = "Ulm"
    delay: int = 3


class Slotted:
    __slots__ = ("delay", "town")

    def __init__(self) -> None:
        self.town, self.delay = "Ulm", 3


class Plain:
    def __init__(self) -> None:
        self.town, self.delay = "Ulm", 3


DICT = {"town": "Ulm", "delay": 3}
TAKES = "the function receives the message: write "


def keyed(stream: Any) -> Any:
    return stream.key_distribute("keys", lambda msg: "a")


def timed(stream: Any) -> Any:
    return keyed(stream.generate_epochs("epochs", lambda msg, epoch: msg.timestamp)[0])


def failure(value: Any, build: Callable[[Any], Any]) -> OperatorError:
    def build_dataflow(provider: StreamProvider) -> None:
        built = build(provider.new_stream().source("source", sis([value])))
        if built is not None:
            built.sink("sink", VecSink())

    with pytest.raises(OperatorError) as caught:
        SingleThreadRuntime(build_dataflow).execute()
    assert caught.value.operator == "op"
    return caught.value


TAKERS_OF_MESSAGES: dict[str, Callable[[Any, Any], Any]] = {
    "key_local": lambda stream, function: stream.key_local("op", function),
    "key_distribute": lambda stream, function: stream.key_distribute("op", function),
    "assign_timestamps": lambda stream, function: stream.assign_timestamps("op", function).generate_epochs(
        "epochs", lambda msg, epoch: None
    )[0],
    "generate_epochs": lambda stream, function: stream.generate_epochs("op", lambda msg, epoch: function(msg))[0],
    "split": lambda stream, function: stream.split("op", lambda msg, outputs: function(msg), 1)[0],
    "inspect": lambda stream, function: stream.inspect("op", lambda msg, context: function(msg)),
    "stateless_op": lambda stream, function: stream.stateless_op("op", lambda msg, output: function(msg)),
    "stateful_op": lambda stream, function: keyed(stream).stateful_op("op", lambda msg, state, output: function(msg)),
    "formatter": lambda stream, function: stream.sink("op", StdOutSink(formatter=function)),
}


@pytest.mark.parametrize("use", TAKERS_OF_MESSAGES)
@pytest.mark.parametrize(
    ("value", "function", "write"),
    [
        (DICT, lambda value: value["town"], "msg.value for its value, as in msg.value['field']"),
        (DICT, itemgetter("town"), "msg.value for its value, as in msg.value['field']"),
        (DICT, lambda value: value.town, "msg.value['town']"),
        (Order(), lambda value: value.town, "msg.value.town"),
        (Order(), attrgetter("town"), "msg.value.town"),
        (1, lambda value: value % 2, "msg.value for its value"),
        ("a", str.lower, "msg.value for its value"),
    ],
)
def test_a_function_of_the_value_where_it_gets_the_message(use: str, value: Any, function: Any, write: str) -> None:
    error = failure(value, lambda stream: TAKERS_OF_MESSAGES[use](stream, function))
    assert f"{TAKES}{write}" in str(error)


TAKERS_OF_VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda stream, function: stream.map("op", function),
    "filter": lambda stream, function: stream.filter("op", function),
    "filter_map": lambda stream, function: stream.filter_map("op", function),
    "flat_map": lambda stream, function: stream.flat_map("op", function),
    "sample": lambda stream, function: stream.sample("op", 0.5, function),
    "map_with_key": lambda stream, function: keyed(stream).map_with_key("op", lambda key, value: function(value)),
    "stateful_map": lambda stream, function: keyed(stream).stateful_map(
        "op", lambda key, value, state: function(value)
    ),
    "ttl_map": lambda stream, function: keyed(stream).ttl_map("op", lambda key, value, at, entries: function(value)),
    "distinct": lambda stream, function: timed(stream).distinct("op", function, within=3),
    "changes": lambda stream, function: keyed(stream).changes("op", function),
    "sum": lambda stream, function: keyed(stream).aggregate("op", agg.sum(function)),
    "sum in a window": lambda stream, function: timed(stream).window(tumbling(3)).aggregate("op", agg.sum(function)),
    "fold": lambda stream, function: keyed(stream).aggregate("op", agg.fold(list, lambda acc, it: function(it))),
    "match": lambda stream, function: timed(stream).match("op", step("one", function)).matches,
}


@pytest.mark.parametrize("use", TAKERS_OF_VALUES)
@pytest.mark.parametrize(
    ("value", "function", "words"),
    [
        (DICT, lambda msg: msg.value["town"], "the function receives the value itself: leave out .value"),
        (1, lambda msg: msg.value, "the function receives the value itself: leave out .value"),
        (Order(), lambda msg: msg.key, "which has no key: call .map_with_key()"),
        (Order(), lambda msg: msg.timestamp, "which has no timestamp: call .stateless_op()"),
        (Order(), lambda value: value.delai, "the value has no attribute 'delai'; it has ['delay', 'town']"),
    ],
)
def test_a_function_of_the_message_where_it_gets_the_value(use: str, value: Any, function: Any, words: str) -> None:
    assert words in str(failure(value, lambda stream: TAKERS_OF_VALUES[use](stream, function)))


def test_a_result_of_a_window_tells_where_its_key_is() -> None:
    error = failure(
        DICT,
        lambda stream: timed(stream).window(tumbling(3)).aggregate("n", agg.count()).map("op", lambda it: it.key),
    )
    assert "call .map_with_key() for a function of key and value" in str(error)


FIELDS: dict[str, Callable[[Any, str], Any]] = {
    "key_local": lambda stream, field: stream.key_local("op", field),
    "key_distribute": lambda stream, field: stream.key_distribute("op", field),
    "sample": lambda stream, field: stream.sample("op", 0.5, field),
    "distinct": lambda stream, field: timed(stream).distinct("op", field, within=3),
    "changes": lambda stream, field: keyed(stream).changes("op", field),
    "sort": lambda stream, field: timed(stream).sort("op", field),
    "aggregate": lambda stream, field: keyed(stream).aggregate("op", agg.sum(field)),
    "two aggregates": lambda stream, field: keyed(stream).aggregate("op", agg.sum(field), agg.max("town")),
    "window": lambda stream, field: timed(stream).window(tumbling(3)).aggregate("op", agg.collect(field)),
}


@pytest.mark.parametrize("use", FIELDS)
@pytest.mark.parametrize("value", [DICT, Order(), Row(), Slotted(), Plain()], ids=lambda value: type(value).__name__)
def test_a_missing_field_is_named_with_those_that_exist(use: str, value: Any) -> None:
    error = failure(value, lambda stream: FIELDS[use](stream, "delai"))
    kind = "item" if value is DICT else "attribute"
    assert f"the value has no {kind} 'delai'; it has ['delay', 'town']; " in str(error)
    assert "malflow/aggregators" not in str(error)


def test_json_of_a_value_that_is_not_names_the_cure() -> None:
    value = {"at": datetime(2026, 1, 2, tzinfo=UTC)}
    sink: Any = KafkaSink("t", servers="localhost:1", encode="json")
    error = failure(value, lambda stream: stream.sink("op", sink))
    assert "datetime is not JSON serializable; pass encode=JsonEncoder(default=str)" in str(error)
    assert JsonEncoder(default=str).encode(value) == b'{"at":"2026-01-02 00:00:00+00:00"}'


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.aggregate("op", 3),
        lambda stream: stream.window(tumbling(3)).aggregate("op", 3),
        lambda stream: stream.rollup("op", ["fortnight"], agg.count()),
        lambda stream: stream.rollup("op", ["hour"], 3),
        lambda stream: stream.match("op", step("one").within(-1)),
        lambda stream: stream.match("op", step("one", "a kind")),
    ],
)
def test_a_place_is_named_once(build: Callable[[Any], Any]) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        build(timed(provider.new_stream().source("source", sis([1]))))

    with pytest.raises(GraphError) as caught:
        SingleThreadRuntime(build_dataflow).execute()
    assert str(caught.value).count("test_mistaken_functions.py") == 1
    assert str(caught.value) == f"{caught.value.reason} [{caught.value.location}]"
