"""Checks of single values, by the constructors that they are for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from malflow.config.entries import Entry, Faults, Layer, Path, dotted
from malflow.config.secrets import Secret
from malflow.config.shapes import TableShape, shape_at
from malflow.connectors.address import Address
from malflow.connectors.by_name import Connection
from malflow.errors import GraphError, MissingDependency
from malflow.runtime.options import RunOptions
from malflow.runtime.processes.options import ProcessOptions
from malflow.runtime.spark.settings import SparkOptions
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import NoPersistence
from malflow.store.redaction import redacted

__all__ = ["check_values"]


def check_values(layer: Layer, faults: Faults) -> None:
    """Check each value of a layer by itself; a fault has the words of the constructor."""
    for path, entry in layer.items():
        check = _check_of(path)
        if check is None:
            continue
        try:
            check(entry.value)
        except GraphError as error:
            faults.add(path, entry.origin, f"{dotted(path)}: {_without_secrets(error, entry)}")
        except MissingDependency:
            pass  # the run says so, if it gets that far


def _check_of(path: Path) -> Callable[[Any], object] | None:
    """Return the function that raises for an invalid value; None if its type is all that it needs."""
    name = path[-1]
    if path in _CHECKS:
        return _CHECKS[path]
    if path[:-1] in _CONSTRUCTORS:
        return lambda value: _CONSTRUCTORS[path[:-1]](**{name: value})
    if path[0] == "operators" and path[2:] == ("url",):
        return lambda url: url is None or Connection(Address.parse(url), {})
    around = shape_at(path[:-1])
    if isinstance(around, TableShape):
        table = around.table
        return lambda value: table(**{name: value})
    return None


def _in_memory(**options: Any) -> object:
    return FsspecBackend("memory://check", **{"allow_unsigned_pickle": True, **options})


_CONSTRUCTORS: Final[Mapping[Path, Callable[..., object]]] = {
    ("run",): partial(RunOptions, persistence=NoPersistence()),
    ("persistence",): _in_memory,
    ("processes",): ProcessOptions,
    ("spark",): SparkOptions,
}
_CHECKS: Final[Mapping[Path, Callable[[Any], object] | None]] = {
    ("run", "persistence"): lambda url: url is None or FsspecBackend(url, allow_unsigned_pickle=True),
    ("run", "job"): lambda job: _in_memory(job=job),
    ("run", "on"): None,
    ("persistence", "allow_unsigned_pickle"): None,
}


def _without_secrets(error: GraphError, entry: Entry) -> str:
    secrets = entry.value.secrets if isinstance(entry.value, Secret) else ()
    return redacted(error.reason, secrets)
