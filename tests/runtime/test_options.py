"""An option of a run is defined once: constructors and builders follow."""

from __future__ import annotations

import inspect
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from malflow import GraphError, RestartPolicy, SingleThreadRuntime, SparkRuntime
from malflow.runtime.options import RunOptions
from malflow.runtime.spark.settings import SparkOptions
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
    "pinned": ("parallelism",),
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
    [(SingleThreadRuntime, RunOptions, COMMON), (SparkRuntime, SparkOptions, OF_SPARK)],
    ids=["single_thread", "spark"],
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
