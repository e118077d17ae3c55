"""Values as the types of SQL hold them, or the reason why they don't fit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn

from malflow.sql.functions.numbers import decimal_of, number_of_text, single, within
from malflow.sql.functions.times import date_of_text, instant, instant_of_text, moment, time_of_text
from malflow.sql.types import INTEGERS, LONGEST, TEXTS, TIMES, SqlType
from malflow.words import short_repr

__all__ = ["check", "constants", "fitted", "json_text", "read_columns"]


_PLAIN_CLASSES = {"DOUBLE": "float", "BOOLEAN": "bool", "VARBINARY": "bytes", "VARCHAR": "str"}
_PLAIN_CLASSES |= dict.fromkeys((*INTEGERS, *TIMES, "DATE"), "int")
"""The usual class of the values of types. Values of another class are converted by a call."""


def check(variable: str, kind: SqlType, at: int, *, as_json: bool) -> str:
    """Return the clause that checks a column: a value of the usual class stays as it is.

    It names what `constants` returns.
    """
    if kind.kind == "ROW":
        null = f"None if {variable} is None else " if kind.nullable else ""
        return f" for {variable} in [{null}makers[{at}]({variable})]"
    given = f"text({variable})" if as_json and kind.kind in TEXTS else variable
    call, plain = f"fit({given}, kinds[{at}], whats[{at}])", _PLAIN_CLASSES.get(kind.kind)
    if plain is None:
        return f" for {variable} in [{call}]"
    test = f"type({variable}) is {plain}"
    if plain == "int":
        test = f"{test} and {variable}.bit_length() < {INTEGERS.get(kind.kind, 32 if kind.kind == 'DATE' else 64)}"
    elif kind.size and kind.size != LONGEST:
        test = f"{test} and len({variable}) <= {kind.size}"
    if kind.nullable:
        test = f"{test} or {variable} is None"
    return f" for {variable} in [{variable} if {test} else {call}]"


def json_text(value: Any) -> str | None:
    """Return a value of JSON as a text; a text and None stay."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def constants(kinds: Sequence[SqlType], whats: Sequence[str]) -> dict[str, object]:
    """Return the objects that the clauses of `check` name, for columns of some types.

    Args:
        kinds: the types.
        whats: what each column is called in errors.
    """
    makers = [row_maker(kind, what) if kind.kind == "ROW" else None for kind, what in zip(kinds, whats, strict=True)]
    return {"fit": fitted, "text": json_text, "kinds": kinds, "whats": whats, "makers": makers}


def row_maker(kind: SqlType, what: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that makes a row of a value of type ROW: a generated one, as dicts of JSON come by millions.

    Args:
        kind: the type.
        what: what the value is called in errors.
    """
    columns = "".join(f"c{at}, " for at in range(len(kind.items)))
    items = "".join(f"v[{it!r}], " for it in kind.names)
    checks = "".join(check(f"c{at}", it, at, as_json=False) for at, it in enumerate(kind.items))
    names = constants(list(kind.items), [what] * len(kind.items))
    quick: dict[type, Callable[[Any], tuple[Any, ...]]] = {
        of: eval(f"lambda v: [({columns}) for {columns.rstrip()} in [{taken}]{checks}][0]", names)  # noqa: S307 - quoted names
        for of, taken in ((dict, f"({items})"), (tuple, "v"), (list, "v"))
    }

    def made(value: Any) -> tuple[Any, ...]:
        make = quick.get(type(value))
        if make is not None:
            with suppress(Exception):  # the slow way names what is wrong
                return make(value)
        found: tuple[Any, ...] = fitted(value, kind, what)
        return found

    return made


def read_columns(value: Any, names: Sequence[str]) -> Sequence[Any]:
    """Return the columns of a value: items of a tuple or mapping, or attributes.

    Raises:
        ValueError: if one is missing.
        TypeError: if a tuple has more or fewer columns.
    """
    try:
        if isinstance(value, Mapping):
            return [value[name] for name in names]
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            if type(value) is tuple and len(value) == len(names):
                return value
            raise TypeError(f"a row has the columns {', '.join(names)}; got {short_repr(value)}")
        return [getattr(value, name) for name in names]
    except (KeyError, AttributeError) as error:
        missing = error.args[0] if isinstance(error, KeyError) else error.name
        raise ValueError(f"column {missing!r} is missing in {short_repr(value)}") from None


def fitted(value: Any, kind: SqlType, what: str) -> Any:
    """Return a value as a type holds it.

    Raises:
        ValueError: if it does not fit.
    """
    try:
        return _fit(value, kind)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise ValueError(f"{what}: {error}") from None


def _fit(value: Any, kind: SqlType) -> Any:
    if value is None:
        if kind.nullable:
            return None
        raise ValueError(f"NULL in a column of {kind}")
    return _FITTING.get(kind.kind, _refuse)(value, kind)


def _refuse(value: Any, kind: SqlType) -> NoReturn:
    raise ValueError(f"{short_repr(value)} is not of type {kind.name}")


def _integer(value: Any, kind: SqlType) -> int:
    if value.__class__ is not int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            _refuse(value, kind)
        value = int(value)
    return within(value, INTEGERS[kind.kind])


def _float(value: Any, kind: SqlType) -> float:
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        _refuse(value, kind)
    if kind.kind == "DOUBLE":
        return float(value)
    found = single(float(value))
    if math.isinf(found) and not math.isinf(value):
        raise OverflowError(f"{value} does not fit into FLOAT, which has 32 bits")
    return found


def _decimal(value: Any, kind: SqlType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        _refuse(value, kind)
    number = number_of_text(value) if isinstance(value, str) else value
    found = decimal_of(number, kind.size, kind.scale)
    if found != (Decimal(repr(number)) if isinstance(number, float) else number):
        raise ValueError(f"{value} has more digits after the point than {kind.name}")
    return found


def _text(value: Any, kind: SqlType) -> str:
    if not isinstance(value, str):
        _refuse(value, kind)
    if len(value) > kind.size:
        raise ValueError(f"{short_repr(value)} is longer than {kind.name}")
    return str(value).ljust(kind.size) if kind.kind == "CHAR" else str(value)


def _bytes(value: Any, kind: SqlType) -> bytes:
    if not isinstance(value, bytes | bytearray) or len(value) > kind.size:
        _refuse(value, kind)
    return bytes(value)


def _boolean(value: Any, kind: SqlType) -> bool:
    is_numpy = getattr(getattr(value, "dtype", None), "kind", "") == "b"
    return bool(value) if isinstance(value, bool) or is_numpy else _refuse(value, kind)


_ZONE = re.compile(r"(?<=[\d.])\s*(?:Z|([+-])([01]\d):?([0-5]\d))\Z")
"""The zone at the end of the text of an instant."""

_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The first second of the year 1, and the last one of 9999: Python has no others."""


def _instant(value: Any, kind: SqlType) -> int:
    if isinstance(value, datetime):
        if value != value:  # noqa: PLR0124 - pandas' NaT
            _refuse(value, kind)
        _check_zone(value, value.tzinfo is not None, kind)
        plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        found = instant(value, kind.size)
        if moment(found, kind.size) != plain:
            raise ValueError(f"{value} is finer than {kind.name}")
        return found
    if isinstance(value, str):
        return _instant_of_text(value, kind)
    found = _units(value, kind)
    if not _FIRST <= found // 10**kind.size <= _LAST:
        raise ValueError(f"{found} is not in the years 1 to 9999, in units of {kind.name}")
    return found


def _instant_of_text(value: str, kind: SqlType) -> int:
    zone = _ZONE.search(value) if ":" in value else None
    if zone is None:
        return instant_of_text(_exact(value, kind), kind.size)
    _check_zone(value, True, kind)
    sign, hours, minutes = zone.groups(default="0")
    offset = timedelta(hours=int(hours), minutes=int(minutes)) // timedelta(seconds=-1 if sign == "-" else 1)
    found = instant_of_text(_exact(value[: zone.start()], kind), kind.size)
    return found - instant(moment(offset, 0), kind.size)


def _check_zone(value: Any, has_zone: bool, kind: SqlType) -> None:
    """Check that an instant has a zone if its type has one. A text without one is in UTC.

    Raises:
        ValueError: if not.
    """
    wanted = kind.kind == "TIMESTAMP_LTZ"
    if has_zone is not wanted:
        given, cure = ("no zone", "use TIMESTAMP") if wanted else ("a zone", "use TIMESTAMP_LTZ")
        raise ValueError(f"{value} has {given}, other than {kind.name}; {cure}")


def _units(value: Any, kind: SqlType) -> int:
    """Return a time that is given as a number, in units of its type."""
    return _integer(value, SqlType("BIGINT")) if hasattr(value, "__index__") else _refuse(value, kind)


def _exact(text: str, kind: SqlType) -> str:
    """Return the text of an instant or a time.

    Raises:
        ValueError: if it is finer than the type.
    """
    if text.partition(".")[2][kind.size :].strip("0"):
        raise ValueError(f"{short_repr(text)} is finer than {kind.name}")
    return text


def _date(value: Any, kind: SqlType) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - date(1970, 1, 1).toordinal()
    if isinstance(value, str) and ":" in value:
        raise ValueError(f"{short_repr(value)} is finer than {kind.name}")
    if isinstance(value, str):
        return date_of_text(value)
    return _units(value, kind)


def _time(value: Any, kind: SqlType) -> int:
    if isinstance(value, time):
        value = value.isoformat()
    if isinstance(value, str):
        return time_of_text(_exact(value, kind), kind.size)
    return _units(value, kind)


def _array(value: Any, kind: SqlType) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        _refuse(value, kind)
    return tuple(_fit(it, kind.items[0]) for it in value)


def _map(value: Any, kind: SqlType) -> dict[Any, Any]:
    is_pairs = isinstance(value, list) and all(type(it) is tuple and len(it) == 2 for it in value)  # noqa: PLR2004 - Arrow's
    if not is_pairs and not isinstance(value, Mapping):
        _refuse(value, kind)
    pairs = value if is_pairs else value.items()
    return {_fit(key, kind.items[0]): _fit(it, kind.items[1]) for key, it in pairs}


def _row(value: Any, kind: SqlType) -> tuple[Any, ...]:
    parts = (
        value if isinstance(value, list | tuple) and len(value) == len(kind.items) else read_columns(value, kind.names)
    )
    return tuple(_fit(it, of) for it, of in zip(parts, kind.items, strict=True))


_FITTING: dict[str, Callable[[Any, SqlType], Any]] = {
    **dict.fromkeys(INTEGERS, _integer),
    **dict.fromkeys(("FLOAT", "DOUBLE"), _float),
    **dict.fromkeys(TEXTS, _text),
    **dict.fromkeys(TIMES, _instant),
    **dict.fromkeys(("BINARY", "VARBINARY"), _bytes),
    "BOOLEAN": _boolean,
    "DECIMAL": _decimal,
    "DATE": _date,
    "TIME": _time,
    "ARRAY": _array,
    "MAP": _map,
    "ROW": _row,
}
