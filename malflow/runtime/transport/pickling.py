"""Pickling between processes; errors name the record or state that can't be pickled or unpickled.

User code must not end malflow's processes: a SystemExit or KeyboardInterrupt that it raises is an ordinary error here.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from malflow.errors import OperatorError
from malflow.runtime.transport.by_value import dumps_by_value
from malflow.words import error_line, error_text, short_repr

__all__ = ["NotPicklable", "dump_columns", "dumps", "load_columns", "load_states", "missing_module", "starved"]

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
