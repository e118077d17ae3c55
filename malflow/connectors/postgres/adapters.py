"""How values of Postgres become those of Python, one to one: psycopg's adapters, and stricter ones.

psycopg reads two different values as one where Python's type has less: an interval of a month as thirty days, a jsonb
``null`` as NULL, an array from 2 to 3 as one from 1 to 2. A copy that writes what it has read would change them. The
stricter loaders refuse such a value, with an error from which the reader makes one that names its place and the cure.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.abc import AdaptContext
from psycopg.abc import Loader as AnyLoader
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader, Transformer

__all__ = ["READING", "interval_text", "text_of"]

_INTERVAL, _JSON, _JSONB, _BYTEA = 1186, 114, 3802, 17

_TIME = r"(?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d+)?"
_DAYS_AND_TIME = re.compile(rf"(?:\d+ days? ?)?(?:{_TIME})?|(?:-\d+ days? ?)?(?:-{_TIME})?".encode())

_MAY_LOSE = re.compile(rb"[0-9.]{16}|[0-9.][eE]")
"""In JSON, numbers that a float may not hold: those of up to 15 digits without an exponent are exact."""

_BOUNDS, _BRACE = b"[{"


class _IntervalLoader(Loader):
    """Reads days and a time below 24 hours of the same sign: the form in which a timedelta is written."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._load = psycopg.adapters.get_loader(oid, pq.Format.TEXT)(oid, context).load  # type: ignore[misc] # it has one

    def load(self, data: Buffer) -> Any:
        """Return the duration."""
        if _DAYS_AND_TIME.fullmatch(data) is None:
            raise psycopg.DataError("a timedelta has no months, nor days apart from hours")
        return self._load(data)


class _JsonbLoader(Loader):
    """Reads JSON but for a ``null`` (it would be NULL) and numbers that a float can't hold."""

    pairs: Any = None

    def load(self, data: Buffer) -> Any:
        """Return the value."""
        text = bytes(data)
        number = _exact if _MAY_LOSE.search(text) else None
        try:
            value = json.loads(text, parse_float=number, object_pairs_hook=self.pairs)
        except RecursionError:
            raise psycopg.DataError("it is nested too deeply") from None
        if value is None:
            raise psycopg.DataError("the value null of JSON would be NULL")
        return value


class _JsonLoader(_JsonbLoader):
    """Reads JSON as it was written, with names that come twice."""

    @staticmethod
    def pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return an object."""
        found = dict(pairs)
        if len(found) < len(pairs):
            raise psycopg.DataError("a name comes twice in an object")
        return found


def _exact(text: str) -> float:
    """Return a number of JSON that a float holds."""
    number = float(text)
    if Decimal(repr(number)) != Decimal(text):
        raise psycopg.DataError(f"a float can't hold the number {text[:50]}")
    return number


def _array_loader(inner: type[AnyLoader], *, is_json: bool) -> type[Loader]:
    """Return a loader of arrays with indices from 1, and of arrays of JSON in which each list is a value."""

    class ArrayLoader(Loader):  # does not inherit: psycopg would call the methods of the one in C
        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self._load = inner(oid, context).load

        def load(self, data: Buffer) -> Any:
            if data[0] == _BOUNDS:
                raise psycopg.DataError("a list begins at index 1")
            if is_json and data[1] == _BRACE:
                raise psycopg.DataError("a list in an array of JSON is a value")
            return self._load(data)

    return ArrayLoader


def _reading() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    for info in psycopg.adapters.types:
        loader = adapters.get_loader(info.array_oid, pq.Format.TEXT) if info.array_oid else None
        if loader is not None:
            adapters.register_loader(info.array_oid, _array_loader(loader, is_json=info.oid in (_JSON, _JSONB)))
    for oid, strict in ((_INTERVAL, _IntervalLoader), (_JSON, _JsonLoader), (_JSONB, _JsonbLoader)):
        adapters.register_loader(oid, strict)
    return adapters


class _BytesDumper(Dumper):
    """Writes bytes as hex: psycopg's dumper escapes for a quoted literal where it has no connection."""

    oid = _BYTEA

    def dump(self, obj: Any) -> bytes:
        """Return the text."""
        return b"\\x" + bytes(obj).hex().encode()


class _TimedeltaDumper(Dumper):
    oid = _INTERVAL

    def dump(self, obj: timedelta) -> bytes:
        """Return the text."""
        return interval_text(obj).encode()


def _writing() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    for kind in (bytes, bytearray, memoryview):
        adapters.register_dumper(kind, _BytesDumper)
    adapters.register_dumper(timedelta, _TimedeltaDumper)
    return adapters


READING: Final = _reading()
"""The adapters of connections and streams: what two values of Postgres would become alike is an error."""

_WRITING = _writing()


def interval_text(value: timedelta) -> str:
    """Return a duration as days and a time of the same sign, as Postgres itself writes it.

    >>> interval_text(timedelta(hours=-1)), interval_text(timedelta(days=1, microseconds=5))
    ('-01:00:00', '1 days 00:00:00.000005')
    """
    sign, size = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(size.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{size.microseconds:06}" if size.microseconds else ""
    days = f"{sign}{size.days} days " if size.days else ""
    return f"{days}{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"


def text_of(value: Any) -> str | None:
    """Return the text of a value for a COPY, before it is escaped, or for a parameter; None for NULL.

    Raises:
        psycopg.Error: if psycopg knows no text, or the value has none; also TypeError, ValueError, OverflowError.
    """
    if value is None:
        return None
    transformer = Transformer(_WRITING)
    dumped = transformer.get_dumper(value, psycopg.adapt.PyFormat.TEXT).dump(value)
    return None if dumped is None else bytes(dumped).decode()
