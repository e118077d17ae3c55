"""All runtimes, their handles and their builders have the same public interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from malflow import RunHandle, SingleThreadRuntime, SparkRuntime
from malflow.runtime.local import LocalHandle
from malflow.runtime.options import RuntimeBuilder
from malflow.runtime.single_thread import SingleThreadRuntimeBuilder
from malflow.runtime.spark.runtime import SparkHandle, SparkRuntimeBuilder


def face(kind: type[Any]) -> dict[str, Any]:
    """Return the public members of a class: the parameters of methods, with their defaults; the rest by kind."""
    members = {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: parameters(it) if inspect.isfunction(it) else type(it).__name__ for name, it in members.items()}


def parameters(method: Callable[..., Any]) -> list[tuple[str, Any]]:
    return [(it.name, it.default) for it in inspect.signature(method).parameters.values()]


def test_runtimes_have_one_face() -> None:
    assert face(SparkRuntime) == face(SingleThreadRuntime)


OF_SPARK = {"query", "copies", "moves", "read_bytes"}
"""The attributes of a handle for which only Spark has a meaning."""


OF_RUNTIMES = {"run", "begin", "reader_is_gone"}
"""The members of a handle that its runtime calls."""


def test_handles_have_one_face() -> None:
    assert {name: it for name, it in face(LocalHandle).items() if name not in OF_RUNTIMES} == face(RunHandle)
    own = OF_SPARK | OF_RUNTIMES
    assert {name: it for name, it in face(SparkHandle).items() if name not in own} == face(RunHandle)


def test_a_handle_has_what_its_runtime_has() -> None:
    runtime, handle = face(SingleThreadRuntime), face(RunHandle)
    assert {
        name: it for name, it in runtime.items() if name not in ("builder", "check_places", "execute", "start")
    }.items() <= (handle.items())


def test_builders_have_one_face() -> None:
    common = face(RuntimeBuilder)
    assert common.items() <= face(SingleThreadRuntimeBuilder).items()
    assert common.items() <= face(SparkRuntimeBuilder).items()
    assert set(face(SingleThreadRuntimeBuilder)) - set(common) == {"build"}
