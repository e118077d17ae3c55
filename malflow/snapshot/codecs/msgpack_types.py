"""The types that the msgpack codec supports beyond msgpack's own, and their plain forms."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from malflow.errors import GraphError
from malflow.message import MAX, MIN, NoKey
from malflow.operators.ttl import ExpireMap
from malflow.snapshot.codecs.old_records import OldRecord, OldTuple, old_class
from malflow.snapshot.codecs.shapes import ENUM, NAMED_TUPLE, Shape, described, form_of, same_form
from malflow.words import plural

__all__ = ["FORMS", "RECORD", "Form", "Misfit", "change_of_record", "members", "old_record", "record_form"]


_MICROSECOND = timedelta(microseconds=1)
_LONGEST_REDUCED = 1 << 12  # bits of the terms of a fraction: to reduce them takes time that grows with their square
_LARGEST_FLAGS = 64  # bits of a flag beside those that are declared: each value that is read is kept by its class
_ZONE = re.compile(r"(?=.{1,64}\Z)[A-Za-z0-9][A-Za-z0-9_+-]*(/[A-Za-z0-9][A-Za-z0-9_+-]*)*")
_HEAP_TYPE = 1 << 9
"""CPython's flag `Py_TPFLAGS_HEAPTYPE`: only classes written in Python, and some of C, have it."""

_NAME = re.compile(r"\S(.{0,98}\S)?")

_SINGLETONS = {"NoKey": NoKey, "MIN": MIN, "MAX": MAX}
_FACTORIES: dict[str, type] = {
    kind.__name__: kind for kind in (bool, bytes, Counter, deque, dict, float, frozenset, int, list, set, str, tuple)
}


class Misfit(TypeError):
    """A record does not match the classes that the program has registered."""


class Form(NamedTuple):
    """The serialised form of one type.

    Attributes:
        code: the extension code of the type; its meaning never changes.
        kind: the type; subclasses are excluded.
        plain: the return type of `write`.
        write: converts a value to simpler data; it may contain any supported type.
        read: converts the data back to a value.
    """

    code: int
    kind: type
    plain: type
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _listed(facts: Any) -> list[Any]:
    """Check that the content of a collection is a list, not just any iterable."""
    if type(facts) is not list:
        raise ValueError(f"a collection must be encoded as a list; got {type(facts).__name__}")
    return facts


def _all_of(kind: type, facts: list[Any], count: int) -> list[Any]:
    """Check the number of facts, and that all are of one type; nothing is parsed."""
    if len(facts) != count or any(type(fact) is not kind for fact in facts):
        raise ValueError(
            f"expected {plural(count, 'value')} of type {kind.__name__}; got {plural(len(facts), 'value')}, or "
            "another type"
        )
    return facts


def _fraction(terms: list[Any]) -> Fraction:
    """Return a fraction; long terms were written reduced, and are not reduced again: that is slow."""
    numerator, denominator = _all_of(int, terms, 2)
    if denominator < 1:
        raise ValueError(f"the denominator of a Fraction must be a positive integer; got {denominator}")
    if max(numerator.bit_length(), denominator.bit_length()) <= _LONGEST_REDUCED:
        return Fraction(numerator, denominator)
    fraction: Any = object.__new__(Fraction)
    fraction._numerator, fraction._denominator = numerator, denominator  # noqa: SLF001 - nothing public leaves them as they are
    return fraction  # type: ignore[no-any-return] # it is one


def _integer_bytes(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _zone_facts(zone: tzinfo | None) -> Any:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined] # as pickle does
        return [offset // _MICROSECOND, *name]
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    raise TypeError(f"a time zone must be a datetime.timezone or a ZoneInfo with a key; got {zone!r}")


def _zone(facts: Any) -> tzinfo | None:
    if facts is None:
        return None
    if isinstance(facts, str):
        if not _ZONE.fullmatch(facts):
            raise ValueError(f"{facts!r} is not the name of a time zone")
        return ZoneInfo(facts)
    offset, *name = facts
    return timezone(timedelta(microseconds=offset), *name)


def _datetime_facts(at: datetime) -> list[Any]:
    clock = [at.hour, at.minute, at.second, at.microsecond]
    return [at.year, at.month, at.day, *clock, at.fold, _zone_facts(at.tzinfo)]


def _datetime(facts: list[Any]) -> datetime:
    *fields, fold, zone = facts
    year, month, day, hour, minute, second, microsecond = fields
    return datetime(year, month, day, hour, minute, second, microsecond, tzinfo=_zone(zone), fold=fold)


def _time_facts(at: time) -> list[Any]:
    return [at.hour, at.minute, at.second, at.microsecond, at.fold, _zone_facts(at.tzinfo)]


def _time(facts: list[Any]) -> time:
    hour, minute, second, microsecond, fold, zone = facts
    return time(hour, minute, second, microsecond, tzinfo=_zone(zone), fold=fold)


def _deque(facts: list[Any]) -> deque[Any]:
    items, limit = facts
    return deque(_listed(items), limit)


def _factory_facts(states: defaultdict[Any, Any]) -> list[Any]:
    factory = states.default_factory
    if factory is None:
        return [None, dict(states)]
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise TypeError(f"the factory of a defaultdict must be one of {', '.join(_FACTORIES)} or None; got {factory!r}")
    return [name, dict(states)]


def _defaultdict(facts: list[Any]) -> defaultdict[Any, Any]:
    name, content = facts
    if type(content) is not dict:
        raise ValueError(f"a defaultdict must be encoded as a dict; got {type(content).__name__}")
    return defaultdict(None if name is None else _FACTORIES[name], content)


def _ordered_facts(ordered: OrderedDict[Any, Any]) -> list[Any]:
    return [list(ordered), list(ordered.values())]


def _ordered(facts: list[Any]) -> OrderedDict[Any, Any]:
    keys, values = facts
    return OrderedDict(zip(_listed(keys), _listed(values), strict=True))


def _expiring_facts(entries: Any) -> list[Any]:
    return [fact for key, (value, expiry) in entries.__getstate__().items() for fact in (key, value, expiry)]


def _expiring(facts: list[Any]) -> Any:
    entries: ExpireMap[Any, Any, Any] = ExpireMap()
    entries.__setstate__(dict(zip(facts[::3], zip(facts[1::3], facts[2::3], strict=True), strict=True)))
    return entries


FORMS = (
    Form(1, tuple, list, list, tuple),
    Form(2, set, list, list, set),
    Form(3, frozenset, list, list, frozenset),
    Form(4, bytearray, bytes, bytes, bytearray),
    Form(5, int, bytes, _integer_bytes, _integer),
    Form(6, complex, list, lambda number: [number.real, number.imag], lambda parts: complex(*_all_of(float, parts, 2))),
    Form(7, datetime, list, _datetime_facts, _datetime),
    Form(8, date, int, date.toordinal, date.fromordinal),
    Form(9, time, list, _time_facts, _time),
    Form(
        10,
        timedelta,
        list,
        lambda span: [span.days, span.seconds, span.microseconds],
        lambda parts: timedelta(*_all_of(int, parts, 3)),
    ),
    Form(11, Decimal, str, str, Decimal),
    Form(12, Fraction, list, lambda ratio: list(ratio.as_integer_ratio()), _fraction),
    Form(13, UUID, bytes, attrgetter("bytes"), lambda data: UUID(bytes=data)),
    Form(14, deque, list, lambda items: [list(items), items.maxlen], _deque),
    Form(15, Counter, dict, dict, Counter),
    Form(16, defaultdict, list, _factory_facts, _defaultdict),
    Form(17, OrderedDict, list, _ordered_facts, _ordered),
    *(Form(18, type(it), str, repr, _SINGLETONS.__getitem__) for it in _SINGLETONS.values()),
    Form(19, ExpireMap, list, _expiring_facts, _expiring),
)

RECORD = 32
"""The code of dataclasses, named tuples and enums: ``[name, field, value, field, ...]`` or ``[name, member]``."""


def record_form(name: str, kind: type) -> Form:
    """Return the form of a dataclass, a named tuple or an enum; it reads and writes the data after the name.

    Raises:
        GraphError: if it is not one of these, or has state that is not in its fields.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise GraphError(f"a type of MsgpackCodec is registered under a name of 1 to 100 characters; got {name!r}")
    if not isinstance(kind, type):
        raise GraphError(f"MsgpackCodec registers classes; '{name}' is {kind!r}")
    if issubclass(kind, Enum):
        return _enum_form(name, kind)
    is_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_field_defaults")
    if not is_tuple and not is_dataclass(kind):
        raise GraphError(f"MsgpackCodec registers dataclasses, named tuples and enums; '{name}' is {kind.__qualname__}")
    _check_no_other_state(name, kind)
    return _tuple_form(name, kind) if is_tuple else _dataclass_form(name, kind)


def members(form: Form, value: Any) -> Mapping[str, Any]:
    """Return the readable fields of a record, for finding the one that can't be serialised."""
    names: Any = getattr(form.kind, "__dataclass_fields__", None) or getattr(form.kind, "_fields", ())
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def change_of_record(shape: Shape, kind: type | None, since: str) -> str | None:
    """Describe how a registered class has changed; None if its old records are still read correctly."""
    name = shape.name
    if kind is None:
        was = described(shape.kind, shape.fields, with_kind=True)
        return f"'{name}', {was} in {since}, is not registered; register its class: MsgpackCodec({{{name!r}: ...}})"
    form = form_of(kind)
    if form is None or _fits(shape, kind, form):
        return None
    with_kind = form[0] != shape.kind
    return (
        f"the {'members' if shape.kind == ENUM else 'fields'} of '{name}' ({kind.__qualname__}) changed since {since}: "
        f"snapshot has {described(shape.kind, shape.fields, with_kind=with_kind)}, program has "
        f"{described(*form, with_kind=with_kind)}; a field may be added if it has a default"
    )


def _fits(shape: Shape, kind: type, form: tuple[str, tuple[str, ...]]) -> bool:
    """Whether a class has all fields that were written, and defaults for its other fields."""
    if issubclass(kind, Enum) and shape.kind == ENUM and not issubclass(kind, Flag):
        return {member.partition("=")[0] for member in shape.fields} <= set(kind.__members__)
    if ENUM in (shape.kind, form[0]):
        return same_form(shape, *form)
    return set(shape.fields) <= set(form[1]) and set(form[1]) - set(shape.fields) <= set(_defaults_of(kind))


def old_record(name: Any, content: list[Any], shapes: Mapping[str, Shape]) -> OldRecord | OldTuple:
    """Return the object passed to a migration for a record that does not fit the registered class.

    Raises:
        ValueError: if it is not a record.
    """
    if isinstance(name, str) and len(content) == 1:
        return old_class(Shape(name, ENUM, ()))(*content)
    if not isinstance(name, str) or not all(isinstance(field, str) for field in content[::2]):
        raise ValueError("a record must be a name with fields")
    fields = dict(zip(content[::2], content[1::2], strict=True))
    is_tuple = name in shapes and issubclass(old_class(shapes[name]), OldTuple)
    kind = NAMED_TUPLE if is_tuple else "record"
    made = old_class(Shape(name, kind, tuple(fields)))
    return made(*fields.values()) if issubclass(made, OldTuple) else made(**fields)


def _enum_form(name: str, kind: type[Enum]) -> Form:
    def read(content: list[Any]) -> Enum:
        (member,) = content
        if isinstance(member, str) and member in kind.__members__:
            return kind.__members__[member]
        raise Misfit(f"enum '{name}' ({kind.__qualname__}) has no member {member!r}, which was written; keep it")

    def read_flag(content: list[Any]) -> Enum:
        (value,) = _all_of(int, content, 1)
        if value.bit_length() > max([_LARGEST_FLAGS, *(it.value.bit_length() for it in kind.__members__.values())]):
            raise Misfit(f"enum '{name}' ({kind.__qualname__}) lacks flags that were written")
        return kind(value)

    if issubclass(kind, Flag):
        return Form(RECORD, kind, list, lambda flag: [name, flag.value], read_flag)
    return Form(RECORD, kind, list, lambda member: [name, member.name], read)


def _tuple_form(name: str, kind: Any) -> Form:
    names: tuple[str, ...] = kind._fields
    defaults = _defaults_of(kind)

    def write(value: Any) -> list[Any]:
        _check_attributes(name, value, ())
        return [name, *chain.from_iterable(zip(names, value, strict=True))]

    def read(content: list[Any]) -> Any:
        whole = _completed(name, kind, names, defaults, content)
        return tuple.__new__(kind, [whole[field] for field in names])

    return Form(RECORD, kind, list, write, read)


def _dataclass_form(name: str, kind: Any) -> Form:
    names = tuple(field.name for field in fields(kind))
    defaults = _defaults_of(kind)

    def write(value: Any) -> list[Any]:
        _check_attributes(name, value, names)
        return [name, *(fact for field in names for fact in (field, getattr(value, field)))]

    def read(content: list[Any]) -> Any:
        whole = _completed(name, kind, names, defaults, content)
        value = object.__new__(kind)
        for field in names:
            object.__setattr__(value, field, whole[field])
        return value

    return Form(RECORD, kind, list, write, read)


def _defaults_of(kind: Any) -> dict[str, Callable[[], Any]]:
    """Return a factory for each field that has a default."""
    if hasattr(kind, "_field_defaults"):
        return {field: partial(_given, value) for field, value in kind._field_defaults.items()}
    return {field.name: default for field in fields(kind) if (default := _default_of(field)) is not None}


def _given(value: Any) -> Any:
    return value


def _default_of(field: Field[Any]) -> Callable[[], Any] | None:
    if field.default_factory is not MISSING:
        return field.default_factory
    return None if field.default is MISSING else lambda: field.default


def _completed(
    name: str,
    kind: type,
    names: tuple[str, ...],
    defaults: Mapping[str, Callable[[], Any]],
    facts: list[Any],
) -> dict[str, Any]:
    """Return the written fields, plus defaults for fields added since."""
    content = dict(zip(facts[::2], facts[1::2], strict=True))
    unknown = [field for field in content if field not in names]
    if unknown:
        raise Misfit(f"'{name}' ({kind.__qualname__}) has no field {unknown[0]!r}, which was written; keep the field")
    missing = [field for field in names if field not in content]
    for field in missing:
        if field not in defaults:
            raise Misfit(f"'{name}' ({kind.__qualname__}) was written without field '{field}'; give it a default")
        content[field] = defaults[field]()
    return content


def _check_attributes(name: str, value: Any, names: tuple[str, ...]) -> None:
    """Check that a record has no attributes besides its fields; cached properties may be lost."""
    attributes = getattr(value, "__dict__", None)
    if not attributes or (len(attributes) == len(names) and all(map(attributes.__contains__, names))):
        return
    for attribute in attributes:
        if attribute not in names and not isinstance(getattr(type(value), attribute, None), cached_property):
            raise TypeError(f"'{name}' has an attribute '{attribute}' that is not a field; it would be lost")


def _check_no_other_state(name: str, kind: type) -> None:
    declared = set(getattr(kind, "__dataclass_fields__", ()))
    is_tuple = hasattr(kind, "_field_defaults")
    for base in kind.__mro__[:-1]:
        if not base.__flags__ & _HEAP_TYPE and not (base is tuple and is_tuple):
            raise GraphError(f"MsgpackCodec can't write '{name}': {kind.__qualname__} is also a {base.__qualname__}")
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in declared and slot not in ("__dict__", "__weakref__"):
                raise GraphError(
                    f"MsgpackCodec can't write '{name}': {kind.__qualname__} has a slot '{slot}' that is not a field"
                )
