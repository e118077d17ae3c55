"""Error messages for failures of user code, and factories that return one object twice."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import currentframe
from itertools import chain
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from malflow.errors import OperatorError
from malflow.words import error_line, error_text, plural, qualified_name, resembling, short_repr

__all__ = [
    "Fresh",
    "describe",
    "is_of_malflow",
    "location",
    "missing_field",
    "note_missing_field",
    "operator_error",
    "place_of",
    "shape_error",
    "short_repr",
    "written_at",
]

_SHAPE = re.compile("unpack|has no attribute ._seen.")
_PACKAGE = f"{Path(__file__).parent}{os.sep}"
_NOT_THE_USERS = (_PACKAGE, f"{Path(os.__file__).parent}{os.sep}", "<frozen ", "<malflow ")


def operator_error(
    operator: str,
    error: BaseException | str,
    record: tuple[Any, Any, Any] | None,
    callback: Any = None,
    *,
    about: str = "",
) -> OperatorError:
    """Return the error that names the operator, the cause, the record and the location of the user's function.

    Args:
        operator: the operator's name.
        error: the exception that user code raised, or a sentence that describes the fault in its result.
        record: key, value and timestamp of the record being processed, if any.
        callback: the user's function or object.
        about: the subject if it is not a record, such as ``part 'a'``.
    """
    reason = error if isinstance(error, str) else _explained(error, record)
    at = f" at {about}" if about else ""
    if record is not None:
        key, value, timestamp = map(short_repr, record)
        at = f" at key {key}, value {value}, timestamp {timestamp}"
    place = place_of(error, callback)
    by = f"; in {place}" if place else ""
    return OperatorError(
        f"operator '{operator}' failed{at}: {reason}{by}", operator=operator, record=record, callback=place
    )


def missing_field(field: str | int, value: object) -> str | None:
    """Return a message that a value lacks a field, listing its fields, similar names first; None if it has the field.

    >>> missing_field("delai", {"town": 1, "delay": 2}), missing_field("real", 1)
    ("the value has no item 'delai'; it has ['delay', 'town']", None)
    >>> missing_field(2, ("Ulm", 5)), missing_field(0, {"town": "Ulm"})
    ('the value has no item at place 2; it has 2 items', "the value has no places; write the name of an item: ['town']")
    """
    if isinstance(field, int):
        return _missing_place(field, value)
    if isinstance(value, Mapping):
        if field in value:
            return None
        kind, names = "item", list(value)
    elif hasattr(value, field):
        return None
    else:
        kind, names = "attribute", _attributes(value)
    near = resembling(field, names, 3)
    names = [*near, *(name for name in names if name not in near)]
    return f"the value has no {kind} {field!r}" + (f"; it has {short_repr(names)}" if names else "")


def _missing_place(place: int, value: object) -> str | None:
    if isinstance(value, Sequence):
        has = f"it has {plural(len(value), 'item')}"
        return None if place < len(value) else f"the value has no item at place {place}; {has}"
    if isinstance(value, Mapping):
        return f"the value has no places; write the name of an item: {short_repr([*value])}"
    names = _attributes(value)
    return "the value has no places" + (f"; write the name of an attribute: {short_repr(names)}" if names else "")


def note_missing_field(error: Exception, field: str | int, value: object, instead: str) -> None:
    """Add a note to an error raised while reading a field, if the value lacks it.

    Args:
        error: the exception.
        field: the name of the item or attribute, or its place.
        value: the value.
        instead: the remedy.
    """
    if isinstance(field, int):
        if (words := missing_field(field, value)) is not None:
            error.add_note(words)
        return
    lacks = error.args == (field,) if isinstance(error, KeyError) else getattr(error, "name", None) == field
    words = missing_field(field, value) if lacks and getattr(error, "obj", value) is value else None
    if words is not None:
        error.add_note(f"{words}; {instead}")


def _attributes(value: object) -> list[str]:
    """Return the field names of a record that is an object."""
    kind = type(value)
    sources = (getattr(kind, "_fields", ()), getattr(kind, "__dataclass_fields__", ()), getattr(value, "__dict__", ()))
    slots = [name for base in kind.__mro__ for name in _slots_of(base)]
    return [name for name in dict.fromkeys([*chain.from_iterable(sources), *slots]) if not name.startswith("_")]


def _slots_of(kind: type) -> Iterable[str]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots


def _explained(error: BaseException, record: tuple[Any, Any, Any] | None) -> str:
    """Return the text of an exception with its notes, and a hint if a function confused the message with its value."""
    notes = getattr(error, "__notes__", [])
    advice = _mistaken(error, record)
    return "; ".join([error_line(error), *notes, *([advice] if advice else [])])


def _mistaken(error: BaseException, record: tuple[Any, Any, Any] | None) -> str | None:
    """Return a hint if a function took the message for its value, or the value for the message."""
    if isinstance(error, TypeError) and "DataMessage'" in error_text(error):
        return "the function receives the message: write msg.value for its value, as in msg.value['field']"
    if not isinstance(error, AttributeError):
        return None
    holder: Any = error.obj
    missing = str(error.name)
    if type(holder).__name__ == "DataMessage":
        is_item = isinstance(holder.value, Mapping)
        return f"the function receives the message: write msg.value{f'[{missing!r}]' if is_item else f'.{missing}'}"
    if record is None or holder is not record[1] or hasattr(error, "__notes__"):
        return None
    return _ELSEWHERE.get(missing) or missing_field(missing, holder)


_ELSEWHERE = {
    "value": "the function receives the value itself: leave out .value",
    "key": "the function receives the value, which has no key: call .map_with_key() for a function of key and value",
    "timestamp": "the function receives the value, which has no timestamp: call .stateless_op() for one of the message",
}
"""Hints for fields of the message in a function that receives the value."""


def place_of(error: BaseException | str, callback: Any) -> str | None:
    """Return the user's function with its location, and the function that raised, if different."""
    raised = None if isinstance(error, str) else _raised_in(error)
    if callback is None or _is_ours(callback):
        return raised and raised[0]
    try:
        described = describe(callback)
    except Exception:  # noqa: BLE001 - a broken __getattr__ must not hide the error being reported
        described = f"an object of class {qualified_name(callback)}"
    if raised is None or raised[1] in described:
        return described
    return f"{described}, raised in {raised[0]}" if described.endswith(")") else raised[0]


def _is_ours(callback: Any) -> bool:
    """Whether a callback belongs to malflow."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    module = getattr(callback, "__module__", "") if isinstance(callback, FunctionType) else type(callback).__module__
    return f"{module}".startswith("malflow.")


def _raised_in(error: BaseException) -> tuple[str, str] | None:
    """Return the user's innermost function in a traceback, with its line and its definition."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_NOT_THE_USERS) and "site-packages" not in code.co_filename:
            name = code.co_qualname.rpartition("<locals>.")[2]
            found = (f"{name} ({code.co_filename}:{trace.tb_lineno})", f"({code.co_filename}:{code.co_firstlineno})")
        trace = trace.tb_next
    return found


def is_of_malflow(file: str) -> bool:
    """Whether a file is one of malflow's own."""
    return file.startswith((_PACKAGE, "<malflow "))


def describe(callback: Any) -> str:
    """Return the name of a user's function or object, with file and line if available.

    >>> describe(len)
    'len'
    """
    while isinstance(callback, functools.partial):
        callback = callback.func
    for target in (
        callback,
        getattr(callback, "__func__", None),
        type(callback).__call__ if callable(callback) else None,
    ):
        code = getattr(target, "__code__", None)
        if code is not None:
            name = getattr(callback, "__qualname__", qualified_name(callback))
            return f"{name.rpartition('<locals>.')[2]} ({code.co_filename}:{code.co_firstlineno})"
    return getattr(callback, "__qualname__", None) or f"an object of class {qualified_name(callback)}"


_TEXT_PLACE: ContextVar[str | None] = ContextVar("malflow_text_place", default=None)
"""The ``file:line`` of a text that operators are built from; None while Python builds them."""


@contextmanager
def written_at(place: str) -> Iterator[None]:
    """Make `location` return a place: that of a text from which operators are built."""
    token = _TEXT_PLACE.set(place)
    try:
        yield
    finally:
        _TEXT_PLACE.reset(token)


def location() -> str | None:
    """Return the ``file:line`` of the user's code that called malflow, or of the text that operators are built from."""
    if (place := _TEXT_PLACE.get()) is not None:
        return place
    frame = currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def shape_error(error: BaseException, expected: str) -> BaseException | str:
    """Return a message with the expected result, if the error arose from unpacking a result."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    in_malflow = last is not None and last.tb_frame.f_globals.get("__name__", "").startswith("malflow.operators")
    if in_malflow and isinstance(error, (TypeError, ValueError, AttributeError)) and _SHAPE.search(error_text(error)):
        got = f"got {type(error.obj).__name__}" if isinstance(error, AttributeError) else error_text(error)
        return f"it must return {expected}; {got}"
    return error


_SHARED = (type, type(None), type(...), FunctionType, BuiltinFunctionType, ModuleType)
_NONE: Any = object()


class Fresh:
    """A factory that checks that its first two states are two objects, if they could change.

    A factory that returns one object again and again, as ``lambda: EMPTY`` does, gives all keys one state. That shows
    only once two keys have changed it.

    Args:
        factory: the factory.
        what: the name of the argument that it was, such as ``default=``.
        done: called with the factory once it needs no further check.
    """

    __slots__ = ("_done", "_factory", "_first", "_what")

    def __init__(self, factory: Callable[[], Any], what: str, done: Callable[[Any], None] | None = None) -> None:
        self._factory, self._what, self._done = factory, what, done
        self._first = _NONE

    def __call__(self) -> Any:
        """Return a new state.

        Raises:
            ValueError: if it is the same object as the first.
        """
        made = self._factory()
        if made is self._first and not _cannot_change(made):
            raise ValueError(
                f"{self._what} returned one object twice, {short_repr(made)}, which all keys would share; return a new "
                f"one each time, as list or lambda: dict(EMPTY) do; it is {describe(self._factory)}"
            )
        if self._done is not None and self._first is not _NONE:
            self._done(self._factory)
        self._first = made
        return made


def _cannot_change(thing: Any) -> bool:
    """Whether a thing counts as immutable: it is hashed by its value, or is one that is never a state of its own."""
    kind: Any = type(thing)
    if kind.__hash__ is None or kind.__hash__ is object.__hash__:
        return type(thing) is object or isinstance(thing, _SHARED)
    try:
        hash(thing)
    except Exception:  # noqa: BLE001 - such as a tuple with a list in it
        return False
    return True
