"""Pickling between processes, of scripts by value; errors name what can't be pickled.

User code must not end malflow's processes: a SystemExit or KeyboardInterrupt that it raises is an ordinary error here.
"""

from __future__ import annotations

import io
import marshal
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from types import CodeType, ModuleType
from typing import Any, ClassVar, Final

from malflow.callables import is_struct
from malflow.errors import MissingDependency, OperatorError
from malflow.runtime.transport.struct_classes import reduced_struct, without_cache
from malflow.words import error_line, error_text, short_repr

__all__ = [
    "NotPicklable",
    "dump_columns",
    "dumps",
    "dumps_by_value",
    "load_columns",
    "load_states",
    "missing_module",
    "starved",
]


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
    """Return cloudpickle: pyspark's copy for runs on Spark, whose executors may have no other.

    The other one is for worker processes: these would import pyspark for its copy.
    """
    if not ("pyspark" in sys.modules and "malflow.runtime.spark" in sys.modules):
        with suppress(ImportError):
            import cloudpickle  # noqa: PLC0415 - an extra

            return cloudpickle  # type: ignore[no-any-return] # it has no types
    try:
        from pyspark import cloudpickle as copied  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingDependency(
            "several processes need cloudpickle, which sends them the dataflow; pip install 'malflow[processes]'"
        ) from error
    return copied  # type: ignore[no-any-return] # it has no types


@cache
def _pickler_of(cloudpickle: ModuleType) -> Any:
    """Return cloudpickle's class of picklers. It keeps the names of the files of code, for errors.

    Some versions drop them. The pickle thus does not depend on the file. All processes have the same Python.
    """
    base: Any = cloudpickle.CloudPickler

    class ByValue(base):  # type: ignore[misc] # its type is not known
        dispatch_table: ClassVar[Any] = ChainMap(_REDUCERS, base.dispatch_table)

        def reducer_override(self, thing: Any) -> Any:
            reduced = super().reducer_override(thing)
            if not isinstance(thing, type) or not isinstance(reduced, tuple):  # not a class by value
                return reduced
            return reduced_struct(thing) if is_struct(thing) else without_cache(reduced)

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


_DEEPEST: Final = 8
"""How deep a placeholder is searched, also in objects that contain themselves. Less finds fewer; more takes longer."""

_FACTS: Final = ("its key", "its value", "its timestamp")
_SENT: Final = "sent to another process"
_READ: Final = "read in another process"

Columns = tuple[Any, ...]
"""The keys, values, timestamps and epochs (watermarks) of a batch."""


class NotPicklable(OperatorError):
    """A value or state can't be pickled or unpickled; a retry does not help."""


def dumps(thing: object) -> bytes:
    """Pickle an object; local classes and functions are pickled by value."""
    try:
        return pickle.dumps(thing, 5)
    except MemoryError:
        raise
    except BaseException:  # noqa: BLE001 - classes of the user may raise any
        return dumps_by_value(thing)


def dump_columns(columns: Columns, operator: str) -> bytes:
    """Pickle the columns of a batch.

    Args:
        columns: the columns.
        operator: the sending operator.

    Raises:
        NotPicklable: naming the record that can't be pickled.
        OperatorError: if there is too little memory.
    """
    try:
        return dumps(columns)
    except MemoryError as error:
        raise starved(operator, "send its records to another process") from error
    except BaseException as error:
        raise _unsendable(columns, operator, error) from error


def _unsendable(columns: Columns, operator: str, error: BaseException) -> NotPicklable:
    for record in _records(columns):
        for what, fact in zip(_FACTS, record, strict=True):
            try:
                dumps(fact)
            except BaseException as why:  # noqa: BLE001 - as above
                return _not_picklable(operator, record, _thing(what, fact, type(fact).__name__), why, _SENT)
    return _not_picklable(operator, None, "a record", error, _SENT)


def load_columns(data: bytes, operator: str) -> Columns:
    """Unpickle the columns of a batch.

    Args:
        data: the pickle that `dump_columns` returned.
        operator: the receiving operator.

    Raises:
        NotPicklable: naming the record that can't be unpickled.
        OperatorError: if there is too little memory.
    """
    try:
        columns: Columns = pickle.loads(data)  # noqa: S301 - this run wrote it
    except MemoryError as error:
        raise starved(operator, "read records of another process") from error
    except BaseException as error:
        raise _unreadable(data, operator, error) from error
    return columns


def _unreadable(data: bytes, operator: str, error: BaseException) -> NotPicklable:
    for record in _records(_mended(data, ((), (), (), ()))):
        for what, fact in zip(_FACTS, record, strict=True):
            if (broken := _found(fact)) is not None:
                return _not_picklable(operator, record, _thing(what, fact, broken.kind), broken.error, _READ)
    return _not_picklable(operator, None, "a record", error, _READ)


def load_states(data: bytes, states_of: Callable[[Any], Mapping[str, Mapping[Any, Any]]]) -> Any:
    """Unpickle an object that holds states.

    Args:
        data: the pickle.
        states_of: returns the states in the object, by operator and key.

    Raises:
        NotPicklable: naming the state that can't be unpickled.
        MemoryError: if there is too little memory.
    """
    try:
        return pickle.loads(data)  # noqa: S301 - this run wrote it
    except MemoryError:
        raise
    except BaseException as error:
        for operator, states in states_of(_mended(data, None)).items():
            for key, state in states.items():
                if (broken := _found(state) or _found(key)) is not None:
                    thing = _thing("its state", state, broken.kind)
                    raise _not_picklable(operator, (key, state, None), thing, broken.error, _READ) from error
        raise


def starved(operator: str, deed: str) -> OperatorError:
    """Return the error of a process that has too little memory; a retry may help.

    Args:
        operator: the operator.
        deed: what the process could not do.
    """
    return OperatorError(
        f"operator '{operator}' failed: a process has too little memory to {deed}; give each process more (on Spark, "
        "by spark.executor.pyspark.memory if that is set), use more workers, or keep less in a state",
        operator=operator,
    )


def missing_module(error: object) -> str:
    """Return a hint if an error reports a missing module, otherwise an empty text."""
    said = error_text(error) if isinstance(error, BaseException) else str(error)
    if "ModuleNotFoundError" not in said and not isinstance(error, ModuleNotFoundError):
        return ""
    return (
        "; all processes must find the modules of the dataflow: on Spark, send them with --py-files, or with "
        "spark.sparkContext.addPyFile(...)"
    )


def _thing(what: str, thing: object, kind: str) -> str:
    return f"{what} {short_repr(thing)} of type {kind}"


def _records(columns: Columns) -> Iterable[tuple[Any, Any, Any]]:
    if len(columns) < len(_FACTS):  # packed as columns
        return ()
    keys, values, timestamps = columns[:3]
    return zip([None] * len(values) if keys is None else keys, values, timestamps, strict=True)


def _not_picklable(
    operator: str, record: tuple[Any, Any, Any] | None, thing: str, why: BaseException, deed: str
) -> NotPicklable:
    at = "" if record is None else f" at key {short_repr(record[0])}"
    hint = missing_module(why) or "; on this runtime it moves between processes"
    return NotPicklable(
        f"operator '{operator}' failed{at}: {thing} can't be {deed}: {error_line(why)}{hint}",
        operator=operator,
        record=record,
    )


class _Broken:
    """A placeholder for an object that can't be unpickled."""

    def __init__(self, kind: str, error: BaseException) -> None:
        self.kind = kind
        self.error = error

    def __repr__(self) -> str:
        return f"<{self.kind}>"

    def __setstate__(self, _state: object) -> None:
        """Ignore the state of the object."""

    def __call__(self, *_: object) -> object:
        """Raise the error of a class or function that could not be found.

        Raises:
            BaseException: the error of the lookup.
        """
        raise self.error


_IN_PYTHON: Any = vars(pickle)["_Unpickler"]
"""The unpickler in Python, whose methods can be overridden."""


class _Mending(_IN_PYTHON):  # type: ignore[misc] # typeshed does not know it
    """An unpickler that uses a placeholder for each object that can't be unpickled."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(_IN_PYTHON.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function, or a placeholder."""
        return _made(name, lambda: super(_Mending, self).find_class(module, name))

    def load_reduce(self) -> None:
        """Call a function for an object."""
        arguments, function = self.stack.pop(), self.stack.pop()
        owner = arguments[0] if arguments and isinstance(arguments[0], type | _Broken) else function
        self.append(_made(_name(owner), lambda: function(*arguments)))

    def load_newobj(self) -> None:
        """Create an object of a class."""
        arguments, kind = self.stack.pop(), self.stack.pop()
        self.append(_made(_name(kind), lambda: _checked(kind).__new__(kind, *arguments)))

    def load_newobj_ex(self) -> None:
        """Create an object of a class with keyword arguments."""
        named, arguments, kind = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.append(_made(_name(kind), lambda: _checked(kind).__new__(kind, *arguments, **named)))

    def load_build(self) -> None:
        """Set the state of an object."""
        made = self.stack[-2]
        try:
            super().load_build()
        except BaseException as error:  # noqa: BLE001 - classes of the user may raise any
            self.stack[-1] = _Broken(type(made).__name__, error)

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    dispatch[pickle.BUILD[0]] = load_build


def _name(thing: Any) -> str:
    return thing.kind if isinstance(thing, _Broken) else str(getattr(thing, "__qualname__", thing))


def _checked(kind: Any) -> Any:
    return kind() if isinstance(kind, _Broken) else kind


def _made(kind: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except BaseException as error:  # noqa: BLE001 - classes of the user may raise any
        return _Broken(kind, error)


def _mended(data: bytes, otherwise: Any) -> Any:
    """Unpickle as much as possible, with placeholders for the rest."""
    try:
        return _Mending(io.BytesIO(data)).load()
    except BaseException:  # noqa: BLE001 - the caller reports the first error, with less detail
        return otherwise


def _found(thing: Any, depth: int = 0) -> _Broken | None:
    """Return the first placeholder in an object, or None."""
    if isinstance(thing, _Broken):
        return thing
    if depth == _DEEPEST or isinstance(thing, str | bytes | int | float | None):
        return None
    inner: list[Any] = list(getattr(thing, "__dict__", {}).values())
    if isinstance(thing, dict):
        inner += [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        inner += thing
    return next((broken for it in inner if (broken := _found(it, depth + 1)) is not None), None)
