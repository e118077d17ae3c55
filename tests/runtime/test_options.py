"""An option of a run is defined once: constructors, their types and builders follow."""

from __future__ import annotations

import inspect
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from malflow import GraphError, MultiProcessRuntime, RestartPolicy, SingleThreadRuntime, SparkRuntime
from malflow.runtime.options import RunArguments, RunOptions
from malflow.runtime.processes.options import ProcessArguments, ProcessOptions
from malflow.runtime.spark.settings import SparkArguments, SparkOptions
from malflow.snapshot import NoPersistence

COMMON: dict[str, Any] = {
    "persistence": NoPersistence(),
    "snapshots": timedelta(seconds=1),
    "parallelism": 3,
    "restore": 7,
    "recovery": "previous",
    "renamed": {"old": "new"},
    "allow_dropped_state": ("gone",),
    "debug": True,
    "listeners": (),
    "sinks": "accept_duplicates",
    "at_end": "keep",
    "part_assignment": "dynamic",
    "move_parts": False,
    "pinned": ("parallelism",),
}
OF_PROCESSES: dict[str, Any] = COMMON | {
    "processes": 2,
    "restart": RestartPolicy(1),
    "start_method": "forkserver",
}
OF_SPARK: dict[str, Any] = COMMON | {
    "spark": object(),
    "conf": {},
    "trigger": timedelta(seconds=2),
    "latency": timedelta(seconds=3),
    "max_records_per_tick": 5,
    "scratch": "/scratch",
    "scratch_options": {"key": "k"},
    "restart": RestartPolicy(1),
    "name": "query",
}
each_runtime = pytest.mark.parametrize(
    ("runtime", "kind", "values"),
    [
        (SingleThreadRuntime, RunOptions, COMMON),
        (MultiProcessRuntime, ProcessOptions, OF_PROCESSES),
        (SparkRuntime, SparkOptions, OF_SPARK),
    ],
    ids=["single_thread", "processes", "spark"],
)


@each_runtime
def test_a_constructor_has_every_option_with_its_default(runtime: Any, kind: Any, values: dict[str, Any]) -> None:
    parameters = dict(inspect.signature(runtime).parameters)
    del parameters["build_dataflow"]
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    if runtime is SingleThreadRuntime:
        assert defaults.pop("parallelism") == 1
        defaults["parallelism"] = None
    assert defaults == {field.name: field.default for field in fields(kind)}
    assert list(values) == [field.name for field in fields(kind)], "this test knows every option"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [(RunArguments, RunOptions), (ProcessArguments, ProcessOptions), (SparkArguments, SparkOptions)],
)
def test_arguments_have_the_types_of_the_options(arguments: Any, kind: Any) -> None:
    positional = {"persistence", "snapshots", "parallelism"}
    types = {name: hint.__forward_arg__ for name, hint in arguments.__annotations__.items()}
    assert types == {it.name: it.type for it in fields(kind) if it.name not in positional}
    assert not arguments.__required_keys__


def test_an_unknown_argument_is_an_error_that_names_the_option_meant() -> None:
    with pytest.raises(
        TypeError, match=r"^MultiProcessRuntime\(\) got .* argument 'proceses'; did you mean 'processes'\?"
    ):
        MultiProcessRuntime(lambda _: None, proceses=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"argument 'processes'$"):
        SingleThreadRuntime(lambda _: None, processes=2)  # type: ignore[call-arg]


def test_a_subclass_has_the_signature_of_its_own_constructor() -> None:
    class Local(SingleThreadRuntime):
        def __init__(self, build_dataflow: Any, *, folder: str) -> None:
            super().__init__(build_dataflow)

    assert list(inspect.signature(Local).parameters) == ["build_dataflow", "folder"]


@each_runtime
def test_constructor_and_builder_pass_every_option_on(runtime: Any, kind: Any, values: dict[str, Any]) -> None:
    wanted = kind(**values)
    assert runtime(lambda _: None, **values)._options == wanted
    builder = runtime.builder()
    for name, value in values.items():
        assert getattr(builder, name)(value) is builder
    assert builder.build(lambda _: None)._options == wanted


def test_options_are_copies_that_the_caller_cannot_change() -> None:
    renamed, listeners = {"old": "new"}, list[Any]()
    options = RunOptions(renamed=renamed, listeners=listeners)
    renamed.clear()
    listeners.append(print)
    assert options.restore_options.renamed == {"old": "new"}
    assert options.listeners == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latency": "soon"}, "latency must be a time above zero, such as '10s', .*; got 'soon'"),
        ({"latency": timedelta(0)}, "latency must be a time above zero"),
        (
            {"latency": timedelta(seconds=1), "trigger": timedelta(seconds=2)},
            "is shorter than trigger=.*; omit trigger",
        ),
    ],
)
def test_a_latency_that_no_tick_can_have_is_refused(options: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        SparkRuntime(lambda _: None, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conf": ["a"]}, "conf must be a dict of Spark's settings; got a list"),
        ({"conf": {"a": 1}}, "conf must have texts as names and values; got int for 'a'"),
        ({"conf": {"a": "b"}, "spark": object()}, "conf and spark are mutually exclusive"),
    ],
)
def test_settings_of_spark_that_can_not_be_set_are_refused(options: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        SparkRuntime(lambda _: None, **options)
