"""The table of functions: what each takes, what it gives, and its source in Python.

What a function takes is a text with a letter for each argument:

    t  a text                          b  a boolean          m  an instant (TIMESTAMP, TIMESTAMP_LTZ)
    i  a whole number                  y  bytes              x  an instant or a date
    n  a number                        a  an array           c  a time of day
    d  a number, converted to DOUBLE   o  a map              u  a word, such as HOUR
    r  a regular expression, compiled  f  a pattern of times, such as 'yyyy-MM-dd'
    p  a path into JSON                *  anything
    =  all of one type: converted to the common one

An argument with `?` after its letter may be left out; the last one with `+` may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from malflow.sql.casts import converted
from malflow.sql.functions.formats import instant_format
from malflow.sql.functions.patterns import regexp
from malflow.sql.functions.texts import json_path
from malflow.sql.text import Span
from malflow.sql.typed import Lenient, Strict, Typed, Value
from malflow.sql.types import BOOLEAN, DOUBLE, INT, INTEGERS, NUMBERS, STRING, TEXTS, TIMES, SqlType, common_type

__all__ = ["Signature", "bound_call", "fitting", "shown"]

Types = Sequence[Typed]


class Signature(NamedTuple):
    """A way to call a function.

    Attributes:
        takes: what it takes, a letter an argument.
        gives: its type, or a function of the arguments that returns it.
        source: its source, with `{0}` and so on for the arguments, and `{*}` for all; or a function of the arguments
            that returns it, or the whole calculation.
        may_be_null: whether it can be NULL though no argument is.
        is_lenient: whether it gets NULLs as None.
    """

    takes: str
    gives: SqlType | Callable[[Types], SqlType]
    source: str | Callable[[Types], str | Typed]
    may_be_null: bool = False
    is_lenient: bool = False


_TAKES: dict[str, tuple[str, frozenset[str] | None]] = {
    "t": ("text", TEXTS),
    "i": ("whole number", frozenset(INTEGERS)),
    "n": ("number", NUMBERS),
    "d": ("number", NUMBERS),
    "b": ("boolean", frozenset({"BOOLEAN"})),
    "y": ("bytes", frozenset({"BINARY", "VARBINARY"})),
    "a": ("array", frozenset({"ARRAY"})),
    "o": ("map", frozenset({"MAP"})),
    "m": ("timestamp", TIMES),
    "x": ("timestamp or date", TIMES | {"DATE"}),
    "c": ("time", frozenset({"TIME"})),
    "u": ("word", frozenset({"WORD"})),
    "r": ("regular expression", TEXTS),
    "f": ("pattern", TEXTS),
    "p": ("path", TEXTS),
    "*": ("any value", None),
    "=": ("value", None),
}
"""What each letter stands for, in messages, and the types that it takes; None for all."""


def shown(name: str, signature: Signature) -> str:
    """Return how a function is called, for a message."""
    parts = []
    for at, letter in enumerate(signature.takes):
        if letter not in "?+":
            mark = signature.takes[at + 1 : at + 2]
            part = _TAKES[letter][0]
            parts.append(f"[{part}]" if mark == "?" else f"{part}, ..." if mark == "+" else part)
    return f"{name}({', '.join(parts)})"


def fitting(signature: Signature, arguments: Types) -> list[Typed] | None:
    """Return the arguments as a function takes them; None if it does not take such ones."""
    letters = _letters(signature.takes, len(arguments))
    if letters is None:
        return None
    for letter, it in zip(letters, arguments, strict=True):
        family = _TAKES[letter][1]
        is_null = it.type.kind == "NULL" and letter in _DEFAULTS
        if family is not None and it.type.kind not in family and not is_null:
            return None
    shared = [it for letter, it in zip(letters, arguments, strict=True) if letter == "="]
    common = common_type([it.type for it in shared]) if shared else None
    if shared and common is None:
        return None
    found: list[Typed] = []
    for letter, it in zip(letters, arguments, strict=True):
        wanted = common if letter == "=" else _DEFAULTS.get(letter)
        is_changed = letter in "d=" or it.type.kind == "NULL"
        found.append(_prepared(letter, converted(it, wanted) if wanted is not None and is_changed else it))
    return found


_DEFAULTS = {"i": INT, "n": INT, "d": DOUBLE, "b": BOOLEAN, **dict.fromkeys("trfp*", STRING)}
"""The type of a NULL among arguments."""

_PREPARED: dict[str, Callable[[str], Any]] = {"r": regexp, "f": instant_format, "p": json_path}
"""What is made once of texts that describe something."""


def _prepared(letter: str, argument: Typed) -> Typed:
    """Return an argument that describes something: a literal is checked, and an expression is compiled.

    Raises:
        ValueError: if a literal is wrong.
    """
    if letter not in _PREPARED or (isinstance(argument, Value) and argument.value is None):
        return argument
    made = _PREPARED[letter](argument.value) if isinstance(argument, Value) else None
    if letter != "r":
        return argument
    kind = SqlType("PATTERN", argument.type.nullable)
    if made is not None:
        return Value(kind, argument.span, made)
    return Strict(kind, argument.span, "regexp({0})", (argument,))


def _letters(takes: str, count: int) -> str | None:
    """Return a letter for each argument; None if there are too few or too many."""
    if takes.endswith("+"):
        fixed = takes[:-1]
        return fixed + fixed[-1] * (count - len(fixed)) if count >= len(fixed) else None
    letters = takes.replace("?", "")
    least = len(letters) - takes.count("?")
    return letters[:count] if least <= count <= len(letters) else None


def bound_call(signature: Signature, arguments: Sequence[Typed], span: Span) -> Typed:
    """Return a call with arguments that fit.

    Raises:
        ValueError: if an argument has a wrong value.
    """
    source = signature.source if isinstance(signature.source, str) else signature.source(arguments)
    if isinstance(source, Typed):
        return replace(source, span=span)
    if "{*}" in source:
        source = source.replace("{*}", ", ".join(f"{{{at}}}" for at in range(len(arguments))))
    result = signature.gives if isinstance(signature.gives, SqlType) else signature.gives(arguments)
    if signature.is_lenient:
        return Lenient(result, span, source, tuple(arguments))
    nullable = signature.may_be_null or any(it.type.nullable for it in arguments)
    return Strict(result.as_nullable(nullable), span, source, tuple(arguments), signature.may_be_null)
