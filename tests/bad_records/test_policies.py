"""The arguments of policies, and the errors of policies themselves."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import DataMessage, Failure, GraphError, OnError, OperatorError, SingleThreadRuntime, StreamProvider, agg
from malflow.engine.compiler import compile_graph, with_policies
from malflow.engine.plan import Program
from malflow.graph import Graph
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource


def run(items: Any, build: Any, **options: Any) -> list[Any]:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        build(provider.new_stream().source("items", SingleIteratorSource(items))).sink("out", sink)

    SingleThreadRuntime(build_dataflow, **options).execute()
    return sink.values


def number(on_error: Any) -> Any:
    return lambda stream: stream.map("number", int, on_error=on_error)


def test_a_function_decides_by_the_failure() -> None:
    seen: list[Failure] = []

    def decide(failure: Failure) -> Any:
        seen.append(failure)
        return "skip" if isinstance(failure.error, ValueError) else "fail"

    with pytest.raises(OperatorError, match=r"operator 'number' failed at key NoKey, value None, timestamp 2: TypeErr"):
        run(["1", "x", None], number(decide))
    assert [(it.operator, it.value, it.timestamp) for it in seen] == [("number", "x", 1), ("number", None, 2)]


@pytest.mark.fault("N2")
def test_a_failing_policy_ends_the_run_and_names_both_failures() -> None:
    def decide(_failure: Failure) -> Any:
        raise LookupError("no idea")

    with pytest.raises(
        OperatorError,
        match=r"value 'x', timestamp 0: LookupError: no idea; its on_error= function was to decide about ValueError: "
        r"invalid literal.*; in .*decide",
    ):
        run(["x"], number(decide))


@pytest.mark.fault("N2")
def test_a_policy_must_return_a_fate() -> None:
    with pytest.raises(OperatorError, match=r"its on_error= function must return 'fail' or 'skip'.*; got None"):
        run(["x"], number(lambda _failure: None))


@pytest.mark.parametrize(
    ("on_error", "message"),
    [
        (
            "skp",
            r"operator 'number' can't have this policy: on_error= takes 'fail', 'skip'.*got 'skp'; did you mean 'sk",
        ),
        ("raise", r"on_error= takes 'fail', .*; got 'raise'"),
        (None, r"on_error= takes 'fail', .*; got None"),
        (lambda: "skip", r"calls its function as on_error\(failure\), but it takes other arguments"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_users_line(on_error: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        run(["x"], number(on_error))
    assert __file__ in str(caught.value)


def test_no_policy_decides_about_memory_and_errors_of_malflow() -> None:
    def fail(value: Exception) -> None:
        raise value

    for error in (MemoryError("all gone"), GraphError("mine")):
        with pytest.raises(OperatorError, match=str(error)):
            run([error], lambda stream: stream.filter("fail", fail, on_error="skip"))
    with pytest.raises(KeyboardInterrupt):
        run([KeyboardInterrupt()], lambda stream: stream.filter("fail", fail, on_error="skip"))


def test_a_failure_at_an_epoch_or_a_timer_ends_the_run() -> None:
    class AtEpoch:
        def on_data(self, msg: Any, output: Any) -> None:
            output.send(DataMessage(msg.key, msg.value, msg.timestamp))

        def on_epoch(self, epoch: Any, output: Any) -> None:
            raise ValueError("at the epoch")

    with pytest.raises(OperatorError, match="at epoch MAX: ValueError: at the epoch"):
        run([1], lambda stream: stream.stateless_op("it", AtEpoch(), on_error="skip"))


@pytest.mark.fault("N3")
def test_a_state_that_cannot_be_copied_ends_the_run() -> None:
    with pytest.raises(
        OperatorError, match=r"operator 'it' failed at key 1: its state .* can't be copied: .*generator"
    ):
        run(
            [0, 1],
            lambda stream: stream.key_distribute("key", lambda _msg: 1).stateful_map(
                "it", lambda _key, value, state: (value, state or (it for it in [1])), on_error="skip"
            ),
        )


def program(build: Any) -> Program:
    graph = Graph()
    build(StreamProvider(graph).new_stream().source("items", SingleIteratorSource([]))).sink("out", VecSink())
    return compile_graph(graph)


def windows(stream: Any) -> Any:
    keyed = stream.map("number", int, on_error="skip").filter("good", bool).key_distribute("key", lambda msg: 1)
    return keyed.aggregate("sum", agg.sum())


def test_other_policies_replace_those_of_the_code() -> None:
    changed = with_policies(program(windows), {"number": OnError("fail")}, default=OnError("skip"))
    found = {vertex.node.name: changed.policy(vertex.node) for vertex in changed.vertices}
    assert found == {
        "items": None,
        "number": None,
        "good": OnError("skip"),
        "key": None,
        "sum": None,
        "out": OnError("skip"),
    }
    assert sorted(changed.counting) == ["good", "key", "out"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sum", r"operator 'sum' can't have an on_error=: .*; put a \.map\(\) with that on_error= before it"),
        ("items", r"operator 'items' can't have an on_error="),
        ("nmber", r"there is no operator 'nmber' for this on_error=; did you mean 'number'\?"),
    ],
)
def test_an_operator_without_a_guarded_form_is_refused(name: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        with_policies(program(windows), {name: OnError("skip")})
