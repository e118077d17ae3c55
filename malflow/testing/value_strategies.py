"""Values that users may have, as strategies of hypothesis: types of Python, numpy and pandas, with their extremes."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from math import copysign
from numbers import Number
from typing import Any

from hypothesis import strategies as st

__all__ = ["python_values", "same_value"]


class _Text(str):
    """A subclass of str."""

    __slots__ = ()


class _Whole(int):
    """A subclass of int."""


class _Plain(enum.Enum):
    ONE = 1
    TWO = "two"


class _Level(enum.IntEnum):
    LOW = 1
    HIGH = 2**40


class _Name(enum.StrEnum):
    SHORT = "short"
    QUOTED = "it's \\"


_EDGES = sorted({sign * (2**bits + more) for bits in (7, 8, 15, 16, 31, 32, 53, 63, 64, 100) for sign in (1, -1)
                 for more in (-1, 0, 1)})  # fmt: skip
_TEXTS = (
    "", " ", "'", '"', "''", "\\", "\\\\", "\\N", "\\x27", "\0", "a\0b", "\n", "\r\n", "\t", ",", ";", "null", "NULL",
    "NaN", "1", "1.0", "true", "{}", "[1]", "{1,2}", "=1+1", "%", "%s", "{x}", "😀", "\U0010ffff", "\ud800", "\udc00a",
    "e\u0301", "é", "İ", "\u2028", "\ufeff", "\x7f", "\x85", "\xa0", "a ", " a", "x" * 300, "2024-02-30",
)  # fmt: skip
_BINARIES = (b"", b"'", b"''", b"\\", b"\\x27", b"\0", b"\n", b"\t", b"\xff", b"\x80'", bytes(range(256)))
_SPECIAL = "'\"\\\0\n\t,{}%é"
"""Characters that some format quotes or escapes."""

_DECIMALS = tuple(
    Decimal(it)
    for it in (
        "0", "-0", "0.0", "1.10", "0.005", "1E+3", "1E-30", "1E+40", "12345678901234567890.123456789", "99.995",
        "-0.1234567890123456789012345678901", "NaN", "-NaN", "sNaN", "Infinity", "-Infinity",
    )
)  # fmt: skip
_FLOATS = (0.0, -0.0, 0.1, 1e22, 1e16, 2.0**53, 5e-324, 1e-45, 1.7976931348623157e308, 3.5e38, 1 / 3)
_ZONES = tuple(
    timezone(timedelta(seconds=it)) for it in (0, 3600, -16200, 20700, 3723, -86399, 86399)
)  # with minutes, seconds, and almost a day
_DURATIONS = (
    timedelta(0), timedelta(days=1), timedelta(hours=24, microseconds=1), timedelta(hours=-1), timedelta(days=-1),
    timedelta(microseconds=-1), timedelta(days=31), timedelta(days=400), timedelta.max, timedelta.min,
)  # fmt: skip


def _zones() -> st.SearchStrategy[Any]:
    return st.none() | st.sampled_from(_ZONES) | st.timezones()


def _integers() -> st.SearchStrategy[Any]:
    return st.integers(-300, 300) | st.sampled_from(_EDGES) | st.integers()


def _texts() -> st.SearchStrategy[Any]:
    special = st.text(st.sampled_from(_SPECIAL), min_size=1, max_size=5)
    return st.sampled_from(_TEXTS) | special | st.text(st.characters(exclude_categories=()), max_size=20)


def _binaries() -> st.SearchStrategy[Any]:
    special = st.lists(st.sampled_from(_SPECIAL.encode()), min_size=1, max_size=5).map(bytes)
    return st.sampled_from(_BINARIES) | special | st.binary(max_size=20)


def _datetimes() -> st.SearchStrategy[Any]:
    whole = st.datetimes(timezones=_zones(), allow_imaginary=True)
    folded = st.datetimes(timezones=_zones()).map(lambda it: it.replace(fold=1, microsecond=0))
    return whole | folded | st.sampled_from([datetime.min, datetime.max, datetime(1970, 1, 1)])  # noqa: DTZ001, DTZ901 - also those


def _scalars() -> list[st.SearchStrategy[Any]]:
    return [
        st.none(),
        st.booleans(),
        _integers(),
        st.sampled_from(_FLOATS) | st.floats(),
        st.sampled_from(_DECIMALS) | st.decimals() | st.decimals(-1000, 1000, places=2),
        _texts(),
        _binaries(),
        st.dates() | st.sampled_from([date.min, date.max]),
        st.times(timezones=st.none() | st.sampled_from(_ZONES)) | st.sampled_from([time.min, time.max]),
        _datetimes(),
        st.sampled_from(_DURATIONS) | st.timedeltas(),
        st.uuids() | st.just(uuid.UUID(int=0)),
    ]


def _uncommon() -> list[st.SearchStrategy[Any]]:
    """Return values that are of a type above, or stand for one."""
    return [
        st.builds(_Text, _texts()),
        st.builds(_Whole, st.integers()),
        st.sampled_from([*_Plain, *_Level, *_Name]),
        st.builds(bytearray, st.sampled_from(_BINARIES)),
        st.builds(memoryview, st.sampled_from(_BINARIES)),
        st.complex_numbers(),
        st.just(object()),
    ]


def _of_numpy() -> list[st.SearchStrategy[Any]]:
    try:
        import numpy as np  # noqa: PLC0415 - optional
    except ImportError:
        return []
    numbers: list[st.SearchStrategy[Any]] = []
    for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        limits = np.iinfo(kind)
        edges = st.sampled_from([int(limits.min), int(limits.max), 1])
        numbers.append(edges.map(kind))
    numbers += [st.floats(width=16).map(np.float16), st.floats(width=32).map(np.float32), st.floats().map(np.float64)]
    numbers += [st.booleans().map(np.bool_), _texts().map(np.str_), st.sampled_from(_BINARIES).map(np.bytes_)]
    texts = ["2024-02-29", "2024-02-29T12:30:15.123456", "1970-01-01T00:00:00.000000001"]
    times = st.sampled_from([np.datetime64("NaT", "ns"), *(np.datetime64(it) for it in texts)])
    durations = st.sampled_from(
        [np.timedelta64(3, "D"), np.timedelta64(-1, "us"), np.timedelta64(1, "ns"), np.timedelta64(1, "M")]
    )
    arrays = st.sampled_from([np.array([1, 2]), np.array([], dtype=float), np.array(["a'"]), np.array(5)])
    return [
        st.one_of(numbers),
        times,
        durations,
        arrays,
    ]


def _of_pandas() -> list[st.SearchStrategy[Any]]:
    try:
        import pandas as pd  # noqa: PLC0415 - optional
    except ImportError:
        return []
    stamps = ["2024-02-29 12:30:15.123456", "2024-02-29 12:30:15.123456789", "2024-02-29T12:30:15+05:45", "1700-01-01"]
    # Spans of Python and a nanosecond: from numpy 2.5 on, pandas 2 warns where it reads the text of a span.
    spans = [timedelta(days=1), timedelta(microseconds=-1), timedelta(days=401, microseconds=-1), 1]
    return [
        st.sampled_from(stamps).map(pd.Timestamp),
        st.sampled_from(spans).map(pd.Timedelta),
        st.sampled_from([pd.NaT, pd.NA]),
    ]


def python_values(*, nested: bool = True) -> st.SearchStrategy[Any]:
    """Return a strategy of values of any type that a user may write. Most connectors refuse some of them.

    There are numbers of every size with NaN, infinities, negative zeros and digits beyond; texts with quotes,
    backslashes, NUL and lone surrogates; bytes of every value; dates, times and durations with zones and extremes;
    enums and subclasses; scalars of numpy and pandas, if these are installed; and values that no system can store.

    Args:
        nested: whether lists and dicts of such values are among them.
    """
    scalar = st.one_of(*_scalars(), st.one_of(*_uncommon(), *_of_numpy(), *_of_pandas()))
    if not nested:
        return scalar
    inner = st.one_of(_scalars())
    keys = _texts() | st.sampled_from([1, None, True, 1.5, "1"])
    lists = st.lists(inner, max_size=4)
    return scalar | st.one_of(
        lists, lists.map(tuple), st.lists(lists, max_size=3), st.dictionaries(keys, inner | lists, max_size=3)
    )


def same_value(wrote: Any, read: Any) -> bool:
    """Whether a value is equal to one that another reader finds.

    Numbers are equal exactly, whatever their types, but a negative zero differs from zero, and a truth from a number;
    NaN equals NaN. Points in time are equal if both have a zone, or neither has. A scalar of numpy, a subclass of str
    or int, and a tuple equal the plain value.

    >>> same_value(0.1, 0.1), same_value(float("nan"), float("nan")), same_value(0.0, -0.0), same_value(1, True)
    (True, True, False, False)
    """
    return _same(_python_value(wrote), _python_value(read))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        here, there = list(one.items()), list(other.items())
        return len(here) == len(there) and all(
            any(_same(key, name) and _same(value, it) for name, it in there) for key, value in here
        )
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if _is_of(one, "pandas") or _is_of(other, "pandas"):  # NaT, NA, or nanoseconds, which Python's types lack
        return type(one) is type(other) and repr(one) == repr(other)
    if isinstance(one, Number) and isinstance(other, Number):
        return _same_number(one, other)
    if isinstance(one, datetime) and isinstance(other, datetime):
        return (one.utcoffset() is None) == (other.utcoffset() is None) and _instant(one) == _instant(other)
    return type(one) is type(other) and bool(one == other)


def _instant(value: datetime) -> timedelta:
    """Return the time since the year 1 in UTC; the difference of two is exact, whatever their fold."""
    return value.replace(tzinfo=None) - datetime.min - (value.utcoffset() or timedelta(0))  # noqa: DTZ901 - compared


def _same_number(one: Any, other: Any) -> bool:
    if _is_nan(one) or _is_nan(other):
        return _is_nan(one) and _is_nan(other)
    if isinstance(one, float) and isinstance(other, float) and copysign(1, one) != copysign(1, other):
        return False
    return bool(one == other)


def _is_nan(number: Any) -> bool:
    return number.is_nan() if isinstance(number, Decimal) else bool(number != number)  # noqa: PLR0124 - NaN


def _python_value(value: Any) -> Any:
    """Return the value of Python's own types that a value stands for."""
    if isinstance(value, enum.Enum) and not isinstance(value, (int, str)):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes.__getitem__(value, slice(None))  # numpy's own would drop NUL at the end, as those of text
    if _is_of(value, "numpy"):
        item = value.tolist()
        return _python_value(item) if type(item) is not type(value) else value
    for kind in (bool, int):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (list, tuple)):
        return [_python_value(it) for it in value]
    if isinstance(value, Mapping):
        return {key: _python_value(it) for key, it in value.items()}
    return _of_pandas_plain(value)


def _is_of(value: Any, package: str) -> bool:
    return type(value).__module__.partition(".")[0] == package


def _of_pandas_plain(value: Any) -> Any:
    """Return a point in time, or a duration, of pandas as Python's own, unless it has nanoseconds or is NaT."""
    if not _is_of(value, "pandas") or any(getattr(value, name, None) for name in ("nanosecond", "nanoseconds")):
        return value
    for name in ("to_pydatetime", "to_pytimedelta"):
        if hasattr(value, name) and repr(value) != "NaT":
            return getattr(value, name)()
    return value
