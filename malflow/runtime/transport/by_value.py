"""Pickling of functions and classes of scripts by value, by cloudpickle."""

from __future__ import annotations

import io
import marshal
import sys
from collections import ChainMap
from collections.abc import Collection
from functools import cache, cached_property, lru_cache
from types import CodeType, ModuleType
from typing import Any, ClassVar

from malflow.errors import MissingDependency

__all__ = ["dumps_by_value"]


def dumps_by_value(thing: object, *, by_name: Collection[type] = ()) -> bytes:
    """Pickle an object, with functions and classes of the script by value.

    Args:
        thing: the object.
        by_name: classes of the script to pickle by name nevertheless, to find the one that can't be pickled.

    Raises:
        MissingDependency: if cloudpickle is not installed.
    """
    with io.BytesIO() as file:
        pickler = _pickler_of(_cloudpickle())
        if by_name:
            pickler = _with_names(pickler, by_name)
        pickler(file, 5).dump(thing)
        return file.getvalue()


def _cloudpickle() -> ModuleType:
    """Return cloudpickle: pyspark's copy where pyspark is loaded. Its executors may have no other."""
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
    """Return cloudpickle's class of picklers. It keeps the names of the files of code, for errors.

    Some versions drop them. The pickle thus does not depend on the file. All processes have the same Python.
    """
    base: Any = cloudpickle.CloudPickler

    class ByValue(base):  # type: ignore[misc] # its type is not known
        dispatch_table: ClassVar[Any] = ChainMap(_REDUCERS, base.dispatch_table)

    return ByValue


def _with_names(base: Any, by_name: Collection[type]) -> Any:
    """Return a class of picklers that pickles some classes by name."""

    class WithNames(base):  # type: ignore[misc] # its type is not known
        def reducer_override(self, thing: Any) -> Any:
            named = isinstance(thing, type) and thing in by_name
            return thing.__qualname__ if named else super().reducer_override(thing)

    return WithNames


_Cached: Any = type(cache(lambda: None))
"""The class of a function with a cache."""


def _reduced(code: CodeType) -> tuple[Any, ...]:
    return marshal.loads, (marshal.dumps(code),)


def _reduced_cache(function: Any) -> str | tuple[Any, ...]:
    """Pickle a script's function with a cache by value, without its entries; functions of modules by name."""
    if function.__module__ != "__main__" and "<locals>" not in function.__qualname__:
        return str(function.__qualname__)
    parameters = function.cache_parameters()
    return _cached, (function.__wrapped__, parameters["maxsize"], parameters["typed"])


def _cached(function: Any, maxsize: int | None, typed: bool) -> Any:
    return lru_cache(maxsize, typed)(function)


def _reduced_property(prop: cached_property[Any]) -> tuple[Any, ...]:
    """Pickle a cached property without the lock of Python 3.11."""
    return _cached_property, (prop.func, prop.attrname)


def _cached_property(function: Any, name: str | None) -> cached_property[Any]:
    prop: cached_property[Any] = cached_property(function)
    prop.attrname = name  # a class that is built from a pickle does not call __set_name__
    return prop


def _reduced_view(view: memoryview) -> tuple[Any, ...]:
    """Pickle a view as a view: cloudpickle would make bytes of it."""
    held = view.tobytes()
    return _viewed, (held if view.readonly else bytearray(held), view.format, view.shape)


def _viewed(data: bytes | bytearray, form: Any, shape: Any) -> memoryview:
    view = memoryview(data)
    return view if (form, shape) == (view.format, view.shape) else view.cast(form, shape)


_REDUCERS: Any = {
    CodeType: _reduced,
    _Cached: _reduced_cache,
    cached_property: _reduced_property,
    memoryview: _reduced_view,
}
