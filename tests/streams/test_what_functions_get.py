"""The reference lists the arguments of each function, and the places that accept the name of a field."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from malflow import DataMessage, GraphError, KeyedStream, SingleThreadRuntime, StreamProvider, agg
from malflow.connectors.kafka import KafkaSink
from malflow.lookups import LookupTable
from malflow.operators.contract import OperatorContext, Output
from malflow.operators.ttl import ExpireMap
from malflow.patterns import step
from malflow.sinks import StdOutSink, VecSink
from tests.conformance.dataflow import sis

ROOT = Path(__file__).parents[2]
VALUE = {"n": 1, "kind": "a"}
ROW = re.compile(r"\| (.+) \| (.+) \|")
METHOD = re.compile(r"`([\w.]+)`|(every)")
FUNCTION = re.compile(r"`(\w+)\(([\w, ]+)\)`( or a field)?")

Make = Callable[[Any, Any, Any], Any]


def table() -> dict[tuple[str, str], tuple[list[str], bool]]:
    """Return the lines of the reference: by method and argument, the arguments of the call, and if a field will do."""
    text = (ROOT / "docs" / "reference.md").read_text().split("## What functions get\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    rows = {}
    for line in lines:
        found = ROW.fullmatch(line)
        assert found is not None, line
        functions = FUNCTION.findall(found[2])
        assert len(functions) == found[2].count("("), line
        for method in METHOD.finditer(found[1]):
            for argument, call, field in functions:
                rows[method[0].strip("`"), argument] = (call.split(", "), field != "")
    return rows


TABLE = table()

KINDS: dict[str, Callable[[Any], bool]] = {
    "value": lambda it: it == VALUE,
    "values": lambda it: it[0] == VALUE,
    "key": lambda it: it == "k",
    "msg": lambda it: isinstance(it, DataMessage) and it.value == VALUE,
    "timestamp": lambda it: it == 0,
    "at": lambda it: it == 5,
    "context": lambda it: isinstance(it, OperatorContext),
    "epoch": lambda it: True,
    "output": lambda it: isinstance(it, Output),
    "outputs": lambda it: it == [False],
    "workers": lambda it: isinstance(it, Sequence) and list(it) == [0],
    "state": lambda it: it in ("state", None),
    "states": lambda it: isinstance(it, Mapping) and list(it.items()) in ([("k", "state")], []),
    "expire_map": lambda it: isinstance(it, ExpireMap),
    "row": lambda it: it == "row 1",
    "rows": lambda it: dict(it) == {"k": VALUE},
    "so_far": lambda it: it["a"] == [],
    "accumulator": lambda it: it == [],
    "batch": lambda it: type(it).__name__ == "RecordBatch" and it.to_pylist()[0] == VALUE,
}

RESULTS: dict[tuple[str, str], Any] = {
    ("key_distribute", "partitioner"): 0,
    ("split", "partitioner"): None,
    ("stateless_op", "logic"): None,
    ("stateless_op", "on_data"): None,
    ("stateless_op", "on_epoch"): None,
    ("stateful_op", "on_epoch"): None,
    ("stateful_op", "on_schedule"): None,
    ("stateful_map", "mapper"): (1, "state"),
    ("connect", "on_left"): "state",
    ("connect", "on_right"): "state",
    ("ttl_map", "mapper"): (1, None),
    ("KafkaSink", "topic"): "topic",
    ("KafkaSink", "headers"): [],
    ("KafkaSink", "timestamp"): 1,
    ("flat_map", "function"): [1],
}
"""What the functions return that may not return just a number."""


class Rows(LookupTable[Any, str]):
    """A table that has a row for each key."""

    def get_many(self, keys: Sequence[Any]) -> Mapping[Any, str]:
        return {key: f"row {key}" for key in keys}


class Called:
    """A function of any arguments that notes whether they are those that the reference promises."""

    def __init__(self, of: tuple[str, str]) -> None:
        self.names = TABLE[of][0]
        self.result = RESULTS.get(of, 1)
        self.fits: list[list[bool]] = []

    def __call__(self, *arguments: Any) -> Any:
        self.fits.append([KINDS[name](it) for name, it in zip(self.names, arguments, strict=True)])
        return self.result


def logic(hook: str) -> Make:
    """Return what adds a stateful_op with a logic of which one method is the given function."""

    def make(stream: Any, keyed: Any, given: Any) -> Any:
        def on_data(self: Any, msg: Any, state: Any, output: Any) -> str:
            if hook == "on_timer":
                output.wake(5)
            return "state"

        class_of_it = type("Logic", (), {"on_data": on_data, hook: lambda self, *arguments: given(*arguments)})
        return keyed.stateful_op("op", class_of_it())

    return make


def stateless(hook: str) -> Make:
    methods = {"on_data": lambda self, msg, output: None}

    def make(stream: Any, keyed: Any, given: Any) -> Any:
        hooked = {**methods, hook: lambda self, *arguments: given(*arguments)}
        return stream.stateless_op("op", type("Logic", (), hooked)())

    return make


def kafka(argument: str) -> Make:
    def make(stream: Any, keyed: Any, given: Any) -> None:
        topic = {"topic": "topic", argument: given}
        options: Any = {"servers": "localhost:1", "delivery": "exactly-once", "marker_topic": "t", "encode": "json"}
        sink: Any = KafkaSink(**{**topic, **options})
        sink.sink_batch(["k"], [VALUE], [0])

    return make


def batches(stream: Any) -> Any:
    pytest.importorskip("numpy")
    pytest.importorskip("pyarrow")
    return stream.to_columns("columns")


def noting(given: Any, answer: Any = lambda batch: batch) -> Any:
    """Return a function of a batch with an answer, after another has noted it; the other itself if it is none."""
    return (lambda batch: (given(batch), answer(batch))[1]) if callable(given) else given


def aggregated(aggregator: Callable[[Any], Any]) -> Make:
    return lambda stream, keyed, given: keyed.aggregate("op", aggregator(given))


USES: dict[tuple[str, str], Make] = {
    ("map", "mapper"): lambda stream, keyed, given: stream.map("op", given),
    ("map_with_key", "mapper"): lambda stream, keyed, given: keyed.map_with_key("op", given),
    ("filter", "predicate"): lambda stream, keyed, given: stream.filter("op", given),
    ("filter_map", "mapper"): lambda stream, keyed, given: stream.filter_map("op", given),
    ("filter_map_many", "function"): lambda stream, keyed, given: stream.filter_map_many(
        "op", noting(given, lambda values: values)
    ),
    ("convert_timestamps", "function"): lambda stream, keyed, given: stream.convert_timestamps("op", given),
    ("flat_map", "function"): lambda stream, keyed, given: stream.flat_map("op", given),
    ("map_batches", "function"): lambda stream, keyed, given: batches(stream).map_batches("op", noting(given)),
    ("map_batches", "frame"): lambda stream, keyed, given: batches(stream).map_batches(
        "op", lambda it: it, frame=noting(given)
    ),
    ("filter_batches", "function"): lambda stream, keyed, given: batches(stream).filter_batches(
        "op", noting(given, lambda batch: batch["n"].is_valid())
    ),
    ("filter_batches", "frame"): lambda stream, keyed, given: batches(stream).filter_batches(
        "op", lambda batch: batch["n"].is_valid(), frame=noting(given)
    ),
    ("sample", "by"): lambda stream, keyed, given: stream.sample("op", 0.5, given),
    ("inspect", "inspector"): lambda stream, keyed, given: stream.inspect("op", given),
    ("inspect_frontier", "inspector"): lambda stream, keyed, given: stream.inspect_frontier("op", given),
    ("lookup", "by"): lambda stream, keyed, given: stream.lookup("op", given, Rows(), lambda value, row: row),
    ("lookup", "joiner"): lambda stream, keyed, given: stream.lookup("op", "n", Rows(), given),
    ("join_broadcast", "joiner"): lambda stream, keyed, given: stream.join_broadcast("op", keyed, given),
    ("map_async", "function"): lambda stream, keyed, given: stream.map_async("op", given, threads=1),
    ("split", "partitioner"): lambda stream, keyed, given: stream.split("op", given, 1)[0],
    ("stateless_op", "logic"): lambda stream, keyed, given: stream.stateless_op("op", given),
    ("stateless_op", "on_data"): stateless("on_data"),
    ("stateless_op", "on_epoch"): stateless("on_epoch"),
    ("key_local", "key_fn"): lambda stream, keyed, given: stream.key_local("op", given),
    ("key_distribute", "key_fn"): lambda stream, keyed, given: stream.key_distribute("op", given),
    ("key_distribute", "partitioner"): lambda stream, keyed, given: stream.key_distribute("op", lambda msg: "k", given),
    ("assign_timestamps", "assigner"): lambda stream, keyed, given: stream.assign_timestamps(
        "op", given
    ).generate_epochs("new", lambda msg, epoch: None)[0],
    ("event_time", "assigner"): lambda stream, keyed, given: stream.event_time("op", given, out_of_orderness=0),
    ("generate_epochs", "generator"): lambda stream, keyed, given: stream.generate_epochs("op", given).on_time,
    ("stateful_map", "mapper"): lambda stream, keyed, given: keyed.stateful_map("op", given),
    ("stateful_op", "logic"): lambda stream, keyed, given: keyed.stateful_op("op", given),
    ("stateful_op", "on_data"): logic("on_data"),
    ("stateful_op", "on_epoch"): logic("on_epoch"),
    ("stateful_op", "on_schedule"): logic("on_schedule"),
    ("stateful_op", "on_timer"): logic("on_timer"),
    ("connect", "on_left"): lambda stream, keyed, given: keyed.connect("op", keyed, given, lambda *_: "state"),
    ("connect", "on_right"): lambda stream, keyed, given: keyed.connect("op", keyed, lambda *_: "state", given),
    ("ttl_map", "mapper"): lambda stream, keyed, given: keyed.ttl_map("op", given),
    ("distinct", "by"): lambda stream, keyed, given: keyed.distinct("op", given, within=3),
    ("changes", "by"): lambda stream, keyed, given: keyed.changes("op", given),
    ("sort", "tie"): lambda stream, keyed, given: keyed.sort("op", given),
    ("asof_join", "tie"): lambda stream, keyed, given: keyed.asof_join(
        "op", keyed.union(keyed, name="twice"), tie=given
    ),
    ("match", "ties"): lambda stream, keyed, given: keyed.match("op", step("a"), ties=given).matches,
    ("match", "kind"): lambda stream, keyed, given: keyed.match("op", step("a", "a"), kind=given).matches,
    ("step", "condition"): lambda stream, keyed, given: keyed.match("op", step("a", given)).matches,
    ("step", "given"): lambda stream, keyed, given: keyed.match("op", step("a", given=given)).matches,
    ("agg.sum", "field"): aggregated(agg.sum),
    ("agg.fold", "add"): aggregated(lambda given: agg.fold(list, given)),
    ("every", "formatter"): lambda stream, keyed, given: stream.sink("op", StdOutSink(formatter=given)),
    ("KafkaSink", "topic"): kafka("topic"),
    ("KafkaSink", "key"): kafka("key"),
    ("KafkaSink", "headers"): kafka("headers"),
    ("KafkaSink", "timestamp"): kafka("timestamp"),
}


def run(use: tuple[str, str], given: Any) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", sis([VALUE, VALUE]))
        timed = stream.generate_epochs("epochs", lambda msg, epoch: None).on_time
        built = USES[use](stream, timed.key_distribute("key", lambda msg: "k"), given)
        if built is not None:
            built.sink("sink", VecSink())

    SingleThreadRuntime(build_dataflow).execute()


@pytest.mark.parametrize("use", TABLE, ids=": ".join)
def test_a_function_gets_what_the_reference_says(use: tuple[str, str]) -> None:
    called = Called(use)
    run(use, called)
    assert called.fits, "it was never called"
    assert all(called.fits[0]), called.names


@pytest.mark.parametrize("use", [use for use, (_, is_field) in TABLE.items() if is_field], ids=": ".join)
def test_a_field_will_do_where_the_reference_says(use: tuple[str, str]) -> None:
    run(use, "n" if use != ("match", "kind") else "kind")


NAMED = {("KafkaSink", "topic")}
"""Arguments of which a text is something else: the name of a topic."""


@pytest.mark.parametrize(
    "use",
    [use for use, (_, is_field) in TABLE.items() if not is_field and use[1][:3] != "on_" and use not in NAMED],
    ids=": ".join,
)
def test_a_field_is_refused_elsewhere(use: tuple[str, str]) -> None:
    with pytest.raises(GraphError):
        run(use, "n")


NOT_OF_RECORDS = {"migrate", "default"}


def test_the_reference_has_every_function_of_the_methods_of_streams() -> None:
    found = [
        (method, name)
        for method in dir(KeyedStream)
        if not method.startswith("_") and callable(getattr(KeyedStream, method))
        for name, parameter in inspect.signature(getattr(KeyedStream, method)).parameters.items()
        if re.search("Callable|_By|Logic", str(parameter.annotation)) and name not in NOT_OF_RECORDS
    ]
    untold = {("asof_join", "right")}
    assert {*found} - {*TABLE} - untold == set()
    assert {"key_distribute", "map", "stateful_map"} <= {method for method, _ in TABLE}
