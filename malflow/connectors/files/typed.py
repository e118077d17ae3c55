"""Types of the fields of records that are read as text or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from inspect import Parameter, signature
from math import inf, isinf
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from malflow.connectors.json_values import json_values
from malflow.errors import GraphError
from malflow.words import error_line, short_repr

__all__ = [
    "BY_NAME",
    "DELIMITERS",
    "FieldError",
    "RecordTypes",
    "StructTypes",
    "Types",
    "shown_kind",
    "without_none",
]

Types = type[Any] | Mapping[str, Any]
"""A dataclass, or types by the names of fields."""

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def _truth(text: str) -> bool:
    return _TRUTH[text.lower()]


DELIMITERS = (";", "\t", "|")
"""Delimiters other than a comma that a file may use."""

_OF_TEXT: dict[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    str: str,
    bool: _truth,
    Decimal: Decimal,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
}
BY_NAME: Mapping[str, Any] = {kind.__name__: kind for kind in _OF_TEXT}
"""Types by their names, for a URL or a configuration."""

_NO_DIGITS = re.compile(r"_|[^\x00-\x7f]")
_TOO_FINE = re.compile(r"[.,]\d{6}\d*[1-9]")
_LENIENT: dict[Any, re.Pattern[str]] = {
    int: _NO_DIGITS,
    float: _NO_DIGITS,
    Decimal: _NO_DIGITS,
    datetime: _TOO_FINE,
    time: _TOO_FINE,
}
"""What Python takes in a text though it is a mistake: ``1_000``, digits of other scripts; or cuts: nanoseconds."""

_EXACT = (Decimal, int, str, float)
"""The types that JSON values of Decimal fields have; a float is NaN or infinite, others are read as Decimals."""

_OF_JSON = {int: (int,), float: (float, int), str: (str,), bool: (bool,)}


class FieldError(ValueError):
    """A field that is missing, or has no value of its type; the message names it."""


class RecordTypes:
    """Convert the fields of records.

    Args:
        asked_by: the name of the source, for errors.
        types: a dataclass for the records; or a dict of types by field name.
        of_text: whether the values are text, as in CSV, or JSON values.

    Raises:
        GraphError: if there is no conversion to one of the types.
    """

    def __init__(self, asked_by: str, types: Types, *, of_text: bool) -> None:
        self._of_text = of_text
        self._made: Any = None
        own: dict[str, Any] = {}
        if isinstance(types, Mapping):
            named = dict(types)
        elif is_dataclass(types):
            self._made = types
            own = {it.name: it for it in fields(types) if it.init}
            named = _annotations(asked_by, types, own)
        else:
            raise GraphError(f"{asked_by} needs a dataclass, or a dict of types by field, as types; got {types!r}")
        self.names = tuple(named)
        self.required = tuple(
            name
            for name in named
            if name not in own or (own[name].default is MISSING and own[name].default_factory is MISSING)
        )
        self.kinds: Mapping[str, Any] = named
        self._exact = tuple(name for name, kind in named.items() if kind is Decimal or Decimal in get_args(kind))
        lenient = _LENIENT if of_text else {datetime: _TOO_FINE, time: _TOO_FINE}
        self._strict = {name: kind for name, it in named.items() if (kind := without_none(it)) in lenient}
        self._converters = {name: self._converter(asked_by, name, kind) for name, kind in named.items()}
        self._as_given = {
            name: frozenset({it, NoneType} if it is not kind else {it})
            for name, kind in named.items()
            if (it := without_none(kind)) in _OF_JSON
        }
        self._is_positional = self._made is not None and _has_parameters(self._made, self.names)

    def missing(self, header: Sequence[str], more: Collection[str] = ()) -> str | None:
        """Return why records with these fields, and `more`, cannot be converted, or None if they can."""
        lacking = [name for name in self.required if name not in header and name not in more]
        if not lacking:
            return None
        mark = next((it for it in DELIMITERS if it in header[0]), None) if self._of_text and len(header) == 1 else None
        cure = f"; pass delimiter={mark!r}" if mark is not None else ""
        return f"no field {lacking[0]!r}, which is in types; the fields are {', '.join(header)}{cure}"

    def value(self, name: str, given: Any) -> Any:
        """Return the value of one field.

        Raises:
            FieldError: if it cannot be converted.
        """
        return self._column(name, (given,))[0]

    def rows(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], more: Mapping[str, Any] = MappingProxyType({})
    ) -> Iterable[Any]:
        """Convert each row of text to a record. The record also has the fields of `more`.

        Raises:
            FieldError: if a value cannot be converted.
        """
        if not rows:
            return []
        columns = list(zip(*rows, strict=True))
        chosen = [name for name in header if name in self._converters or self._made is None]
        converted = [self._column(name, columns[header.index(name)]) for name in chosen]
        added = self._chosen(more)
        chosen += added
        converted += [[value] * len(rows) for value in added.values()]
        records = [dict(zip(chosen, row, strict=True)) for row in zip(*converted, strict=True)]
        return records if self._made is None else [self._make(record) for record in records]

    @property
    def wants_exact(self) -> bool:
        """Whether a field is a Decimal. A float would change it."""
        return bool(self._exact)

    def record(self, value: Any, exact: Any = None, more: Mapping[str, Any] = MappingProxyType({})) -> Any:
        """Convert a JSON value to a record.

        Args:
            value: the value.
            exact: the same value with Decimals instead of floats, if `wants_exact`.
            more: fields that the record has too.

        Raises:
            FieldError: if it is not an object, lacks a field, or has a field of another type.
        """
        if not isinstance(value, dict):
            raise FieldError(f"{type(value).__name__} instead of the object that types needs")
        reason = self.missing(list(value), more)
        if reason is not None:
            raise FieldError(reason)
        if exact is not None:
            value = {**value, **{name: exact[name] for name in self._exact if name in exact}}
        found = {name: self._column(name, (value[name],))[0] for name in self.names if name in value}
        return {**value, **found, **more} if self._made is None else self._make(found | self._chosen(more))

    def parsed(self, texts: Sequence[str]) -> list[Any] | None:
        """Return the records of several JSON texts; None if each must be looked at.

        Raises:
            ValueError: if one is not JSON.
            RecursionError: if one is nested too deeply.
        """
        return None if self._exact else self.records(json_values(texts))

    def records(self, values: Sequence[Any]) -> list[Any] | None:
        """Convert JSON values to records, field by field; None if `record` must look at each of them.

        The values become the records, unless these are objects of a class.
        """
        if set(map(type, values)) != {dict}:
            return None
        names = self.names
        try:
            columns = [self._converted(name, [value[name] for value in values]) for name in names]
            if self._made is None:
                for name, (column, is_new) in zip(names, columns, strict=True):
                    for value, it in zip(values, column, strict=True) if is_new else ():
                        value[name] = it
                return list(values)
            rows = zip(*[column for column, _ in columns], strict=True) if columns else ((),) * len(values)
            made = self._made
            if self._is_positional:
                return [made(*row) for row in rows]
            return [made(**dict(zip(names, row, strict=True))) for row in rows]
        except Exception:  # noqa: BLE001 - of a value or a user's class: `record` raises the error of its record
            return None

    def _converted(self, name: str, values: Sequence[Any]) -> tuple[Sequence[Any], bool]:
        """Return the values of a field, and whether any differs from what was given."""
        as_given = self._as_given.get(name)
        if as_given is not None and as_given.issuperset(map(type, values)):
            return values, False
        return self._column(name, values), True

    def _chosen(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that a record has."""
        return {name: value for name, value in more.items() if self._made is None or name in self.names}

    def _column(self, name: str, values: Sequence[Any]) -> Sequence[Any]:
        convert = self._converters.get(name)
        if convert is None:
            return values
        converted: list[Any] = []
        try:
            converted.extend(map(convert, values))
        except Exception as error:
            value, kind = values[len(converted)], self.kinds[name]
            may_be_empty = value in ("", None) and isinstance(kind, type)
            cure = f"; write {shown_kind(kind)} | None if it may be empty" if may_be_empty else ""
            raise FieldError(f"field {name!r} is not {shown_kind(kind)}: {short_repr(value)}{cure}") from error
        if name in self._strict:
            self._check_strict(name, values, converted)
        return converted

    def _check_strict(self, name: str, values: Sequence[str], converted: Sequence[Any]) -> None:
        """Refuse texts that Python converts, though no other program would, or to another value."""
        kind = self._strict[name]
        find = _LENIENT[kind]
        at = None
        if find.search("\n".join(map(str, values))) is not None:
            at = next(at for at, text in enumerate(values) if find.search(f"{text}") is not None)
        elif kind is float and (inf in converted or -inf in converted):
            at = next((at for at, it in enumerate(converted) if _is_too_large(it, values[at])), None)
        if at is not None:
            raise FieldError(f"field {name!r} is not {shown_kind(self.kinds[name])}: {short_repr(values[at])}")

    def _make(self, record: dict[str, Any]) -> Any:
        try:
            return self._made(**record)
        except Exception as error:
            raise FieldError(f"{self._made.__name__} rejects it: {error_line(error)}") from error

    def _converter(self, asked_by: str, name: str, kind: Any) -> Callable[[Any], Any]:
        """Return the function that converts a value to a type."""
        if get_origin(kind) in (Union, UnionType):
            inner = [it for it in get_args(kind) if it is not NoneType]
            if len(inner) == 1 and len(get_args(kind)) > 1:
                convert, empty = self._converter(asked_by, name, inner[0]), "" if self._of_text else None
                return partial(_or_none, convert, empty)
        if kind is Any or kind is object:
            return _as_it_is
        if not self._of_text and kind in _OF_JSON:
            return partial(_checked, kind)
        if kind is Decimal and not self._of_text:
            return _decimal
        if kind in _OF_TEXT:
            return _OF_TEXT[kind]
        if isinstance(kind, type) and issubclass(kind, Enum):
            by_text = {str(member.value) if self._of_text else member.value: member for member in kind}
            return by_text.__getitem__ if self._of_text else partial(_member, by_text)
        if get_origin(kind) is None and callable(kind):
            called: Callable[[Any], Any] = kind
            return called
        raise GraphError(
            f"{asked_by} cannot read field {name!r} as {shown_kind(kind)}; pass int, float, bool, str, Decimal, "
            "datetime, date, time, UUID, an Enum, one of these or None, or a function of the value"
        )


class StructTypes(RecordTypes):
    """Records of a `Struct` of msgspec. It says what they take, and converts them.

    msgspec refuses some of what `json` takes, such as NaN; such a record is converted from the value that `json` reads.

    Args:
        made: the class.
    """

    def __init__(self, made: Any) -> None:
        from msgspec.structs import fields as fields_of  # noqa: PLC0415 - an extra; the class is of it

        self._made = made
        self._exact = ()
        self.names = tuple(it.encode_name for it in fields_of(made))
        self.kinds = {it.encode_name: it.type for it in fields_of(made)}

    @cached_property
    def _decode(self) -> Callable[[str], Any]:
        from msgspec.json import Decoder  # noqa: PLC0415 - as above

        decode: Callable[[str], Any] = Decoder(self._made).decode
        return decode

    def __getstate__(self) -> dict[str, Any]:
        """Pickle all but the parser."""
        return {name: it for name, it in self.__dict__.items() if name != "_decode"}

    def parsed(self, texts: Sequence[str]) -> list[Any] | None:
        """Return the records of several JSON texts; None if each must be looked at."""
        try:
            return list(map(self._decode, texts))
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - of msgspec or the class: `record` raises the error of its record
            return None

    def record(self, value: Any, _exact: Any = None, _more: Mapping[str, Any] = MappingProxyType({})) -> Any:
        """Convert a JSON value to a record.

        Raises:
            FieldError: if the class does not take it.
        """
        from msgspec import convert  # noqa: PLC0415 - as above

        try:
            return convert(value, self._made)
        except Exception as error:
            raise FieldError(f"{self._made.__name__} rejects it: {error_line(error)}") from error


def without_none(kind: Any) -> Any:
    """Return a type without its alternative None."""
    inner = [it for it in get_args(kind) if it is not NoneType]
    return inner[0] if get_origin(kind) in (Union, UnionType) and len(inner) == 1 else kind


def _has_parameters(made: Any, names: Sequence[str]) -> bool:
    """Whether a class takes arguments of these names, in this order, without their names."""
    try:
        parameters = signature(made).parameters.values()
    except (TypeError, ValueError):
        return False
    return [(it.name, it.kind) for it in parameters] == [(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]


def _is_too_large(value: Any, text: str) -> bool:
    return isinstance(value, float) and isinf(value) and "inf" not in text.lower()


def _annotations(asked_by: str, made: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    try:
        hints = get_type_hints(made)
    except NameError as error:
        raise GraphError(f"{asked_by} cannot read the types of {made.__name__}: {error}") from error
    return {name: hints[name] for name in own}


def _checked(kind: Any, value: Any) -> Any:
    if not isinstance(value, _OF_JSON[kind]) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{type(value).__name__} is not {kind.__name__}")
    return float(value) if kind is float else value


def _decimal(value: Any) -> Decimal:
    if not isinstance(value, _EXACT) or isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} is not a number")
    return Decimal(value)


def _member(members: Mapping[Any, Any], value: Any) -> Any:
    member = members[value]
    if isinstance(value, bool) and not isinstance(member.value, bool):
        raise TypeError("true and false are not 1 and 0")
    return member


def _or_none(convert: Callable[[Any], Any], empty: Any, value: Any) -> Any:
    return None if value == empty else convert(value)


def _as_it_is(value: Any) -> Any:
    return value


def shown_kind(kind: Any) -> str:
    """Return a type as text."""
    return kind.__name__ if isinstance(kind, type) else getattr(kind, "__name__", repr(kind))
