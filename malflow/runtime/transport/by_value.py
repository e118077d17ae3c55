"""Pickling of functions and classes of scripts by value, by cloudpickle."""

from __future__ import annotations

import io
import marshal
import sys
from collections import ChainMap
from functools import cache, lru_cache
from types import CodeType, ModuleType
from typing import Any, ClassVar

from malflow.errors import MissingDependency

__all__ = ["dumps_by_value"]


def dumps_by_value(thing: object) -> bytes:
    """Pickle an object, with functions and classes of the script by value.

    Raises:
        MissingDependency: if cloudpickle is not installed.
    """
    with io.BytesIO() as file:
        _pickler_of(_cloudpickle())(file, 5).dump(thing)
        return file.getvalue()


def _cloudpickle() -> ModuleType:
    """Return cloudpickle: pyspark's copy where pyspark is loaded, whose executors may have no other."""
    if "pyspark" in sys.modules:
        from pyspark import cloudpickle as copied  # noqa: PLC0415 - only the extra has it

        return copied  # type: ignore[no-any-return] # it has no types
    try:
        import cloudpickle  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingDependency(
            "several processes need cloudpickle, which sends them the dataflow; pip install 'malflow[processes]'"
        ) from error
    return cloudpickle  # type: ignore[no-any-return] # it has no types


@cache
def _pickler_of(cloudpickle: ModuleType) -> Any:
    """Return cloudpickle's class of picklers, which here keeps the names of the files of code, for errors.

    Some versions drop them, so that the pickle does not depend on the file. All processes have the same Python.
    """
    base: Any = cloudpickle.CloudPickler

    class ByValue(base):  # type: ignore[misc] # its type is not known
        dispatch_table: ClassVar[Any] = ChainMap({CodeType: _reduced, _Cached: _reduced_cache}, base.dispatch_table)

    return ByValue


_Cached: Any = type(cache(lambda: None))
"""The class of a function with a cache."""


def _reduced(code: CodeType) -> tuple[Any, ...]:
    return marshal.loads, (marshal.dumps(code),)


def _reduced_cache(function: Any) -> str | tuple[Any, ...]:
    """Pickle a script's function with a cache by value, without its entries; those of modules by name."""
    if function.__module__ != "__main__" and "<locals>" not in function.__qualname__:
        return str(function.__qualname__)
    parameters = function.cache_parameters()
    return _cached, (function.__wrapped__, parameters["maxsize"], parameters["typed"])


def _cached(function: Any, maxsize: int | None, typed: bool) -> Any:
    return lru_cache(maxsize, typed)(function)
