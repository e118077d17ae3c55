"""The layer of the code: the options with which it made its runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, Literal, TypeAlias

from malflow.config.entries import Entry, Layer, Origin, Path
from malflow.config.shapes import shape_at
from malflow.config.tables import PersistenceSettings
from malflow.runtime.base import Declared
from malflow.runtime.options import RunOptions
from malflow.runtime.processes.options import ProcessOptions
from malflow.runtime.restarts import RestartPolicy
from malflow.runtime.spark.settings import SparkOptions
from malflow.snapshot.backend import FsspecBackend

__all__ = ["KINDS", "On", "code_layer", "is_default", "kind_of", "table_of"]

On: TypeAlias = Literal["single", "processes", "spark"]

KINDS: Final[Mapping[On, type[RunOptions]]] = {"spark": SparkOptions, "processes": ProcessOptions, "single": RunOptions}
"""The options of each kind of runtime, the most particular ones first."""


def kind_of(options: RunOptions) -> On:
    """Return the kind of runtime that options are for."""
    return next(kind for kind, of_kind in KINDS.items() if isinstance(options, of_kind))


def table_of(name: str, kind: On) -> str:
    """Return the table that has an option of a runtime."""
    return "run" if any(it.name == name for it in fields(RunOptions)) else kind


def is_default(options: RunOptions, name: str) -> bool:
    """Whether an option has the value that it has if nobody passes it; one worker is that of one thread."""
    value = getattr(options, name)
    if name == "parallelism" and kind_of(options) == "single":
        return value in (None, 1)
    return bool(value == getattr(type(options)(), name))


def code_layer(declared: Declared) -> Layer:
    """Return the options that the code passed, with its place; objects that no configuration can name are left out."""
    options = declared.options
    origin = Origin("code", f"code {declared.location}" if declared.location else "code")
    kind = kind_of(options)
    found: dict[Path, Entry] = {}
    for it in fields(options):
        path = (table_of(it.name, kind), it.name)
        if shape_at(path) is not None and (it.name in options.pinned or not is_default(options, it.name)):
            found |= {leaf: Entry(value, origin) for leaf, value in _leaves(path, getattr(options, it.name))}
    return found


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, FsspecBackend):
        yield from _of_backend(value)
    elif isinstance(value, RestartPolicy):
        yield from (((*path, it.name), getattr(value, it.name)) for it in fields(value))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves((*path, str(name)), inner)
    elif path != ("run", "persistence"):
        yield path, value


def _of_backend(backend: FsspecBackend) -> Iterator[tuple[Path, Any]]:
    given = backend.arguments
    if given["url"] is not None:
        yield ("run", "persistence"), given["url"]
    yield ("run", "job"), given["job"]
    given["codec"] = given["codec"].name
    for it in fields(PersistenceSettings):
        if it.name != "signing_key" and given[it.name] != it.default:
            yield from _leaves(("persistence", it.name), given[it.name])
