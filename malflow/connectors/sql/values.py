"""Python values for a database: numpy's and pandas' converted, and each checked against its column."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_UP, Context, Decimal, localcontext
from itertools import chain
from numbers import Integral, Number, Real
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from malflow.connectors.json_names import check_names
from malflow.connectors.sql.database import SqlError
from malflow.connectors.sql.described import SqlTable
from malflow.connectors.sql.kept_values import Check, unkept
from malflow.connectors.tables.transaction_rows import Row, RowBatch
from malflow.words import plural, short_repr

__all__ = [
    "ValueChecks",
    "plain_batch",
    "plain_value",
]

_KINDS: Sequence[tuple[Any, tuple[type, ...], str]] = (
    (sa.Boolean, (bool, Integral), "a boolean"),
    (sa.Integer, (Integral,), "an integer"),
    ((sa.Numeric, sa.Float), (Real, Decimal), "a number"),
    (sa.String, (str,), "text"),
    ((sa.LargeBinary, sa.BINARY, sa.VARBINARY), (bytes, bytearray, memoryview), "bytes"),
    (sa.DateTime, (datetime,), "a datetime"),
    (sa.Date, (date,), "a date"),
)
"""Kinds of columns, the Python types of their values, and names for these in messages."""

_SPANS = ("timedelta64",)  # numpy counts them among the integers
_MISSING = ("NaTType", "NAType")
_SENT = (int, float, Decimal)
"""Types of numbers that every driver accepts."""

_BITS = ((sa.BigInteger, 64), (sa.SmallInteger, 16), (sa.Integer, 32))
_FEWER_BITS: Mapping[type, int] = {mysql.TINYINT: 8, mysql.MEDIUMINT: 24}
_BYTES: Mapping[type, int] = {
    mysql.TINYTEXT: 2**8 - 1,
    mysql.TINYBLOB: 2**8 - 1,
    mysql.TEXT: 2**16 - 1,
    sa.BLOB: 2**16 - 1,
    mysql.MEDIUMTEXT: 2**24 - 1,
    mysql.MEDIUMBLOB: 2**24 - 1,
}
"""The capacity of MySQL's columns, in bytes."""
_BINARIES = (sa.BINARY, sa.VARBINARY, sa.BLOB, mysql.TINYBLOB, mysql.MEDIUMBLOB)
_LONGEST = 2**32 - 1
"""The capacity of MySQL's LONGBLOB, in bytes: the bound of binary columns without a length and without an entry
above."""

_UTF_8 = ("utf8mb4", "utf8mb3", "utf8")
_STRICT = ("mysql", "mariadb", "postgresql")


_LONG = (str, bytes, bytearray, memoryview)
_MOST_ESCAPED = 8  # bytes of a character: up to four, each escaped by a backslash
_AROUND = 4096  # bytes of a statement around its values
_PER_CELL = 128
"""Bytes of a statement for a column's name, a number, quotes and commas per cell. With less, the server may refuse a
row after the check; with more, rows just below the limit are refused needlessly."""

_ESCAPED = (b"\0", b"\n", b"\r", b"\x1a", b'"', b"'", b"\\")


class ValueChecks:
    """The checks of a table's columns.

    They do not ask the database: a row may depend on a row that another sink has not committed yet.
    """

    def __init__(
        self,
        table: SqlTable,
        dialect: sa.Dialect,
        key: Collection[str] = (),
        packet: int | None = None,
        *,
        rounds: bool = False,
    ) -> None:
        """Build the checks.

        Args:
            table: the description of the table.
            dialect: the dialect of the database.
            key: the columns that are looked up again, and must not be rounded.
            packet: the largest size of a statement in bytes; None if there is no limit.
            rounds: whether the database may round digits and fractions of a second, but for keys.
        """
        self._packet = packet
        self._table = table
        self._made_of = table, dialect.name, dialect.driver, tuple(key), packet, rounds
        self._checks = {
            name: _check_of(table, name, dialect, is_key=name in key, rounds=rounds) for name in table.columns
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _checks, self._made_of

    def check(self, batch: RowBatch) -> None:
        """Check the rows of a batch.

        Raises:
            SqlError: if a value does not fit; the error names the column, the value and the row.
        """
        if batch.operation == "merge":
            deleted = [row for row in batch.rows if row[0]]
            self.check(RowBatch("upsert", batch.columns, [row[1:] for row in batch.rows if not row[0]]))
            places = [place for place, cell in enumerate(deleted[0][1:]) if cell is not None] if deleted else []
            names = tuple(batch.columns[place] for place in places)
            self.check(RowBatch("delete", names, [tuple(row[place + 1] for place in places) for row in deleted]))
            return
        for place, name in enumerate(batch.columns):
            check = self._checks[name]
            for row in batch.rows:
                wrong = check(row[place])
                if wrong is not None:
                    raise SqlError(
                        f"table {self._table.shown}, column {name!r}: {short_repr(row[place])} {wrong}; "
                        f"the row is {short_repr(dict(zip(batch.columns, row, strict=True)))}"
                    )
        if self._packet is not None:
            for row in batch.rows:
                self._check_size(batch, row)

    def _check_size(self, batch: RowBatch, row: Row) -> None:
        most = self._packet or 0
        if sum(_MOST_ESCAPED * len(it) for it in row if isinstance(it, _LONG)) < most - _AROUND:
            return
        size = sum(_size(it) for it in row)
        if size > most - _AROUND - _PER_CELL * len(row):
            raise SqlError(
                f"table {self._table.shown}: a row takes {size:,} bytes, and the server takes statements of at most "
                f"{most:,}; raise its 'max_allowed_packet', or write less; the row is "
                f"{short_repr(dict(zip(batch.columns, row, strict=True)))}"
            )


def _checks(
    table: SqlTable, dialect: str, driver: str, key: tuple[str, ...], packet: int | None, rounds: bool
) -> ValueChecks:
    """Return the checks in another process. That process need not have the driver of the database."""
    return ValueChecks(table, sa.make_url(f"{dialect}+{driver}://").get_dialect()(), key, packet, rounds=rounds)


def _size(value: Any) -> int:
    """Return the number of bytes that a cell takes in a statement."""
    if not isinstance(value, _LONG):
        return 0
    raw = value.encode() if isinstance(value, str) else bytes(value)
    return len(raw) + sum(raw.count(it) for it in _ESCAPED)


def _check_of(table: SqlTable, name: str, dialect: sa.Dialect, *, is_key: bool, rounds: bool) -> Check:
    column = table.table.c[name]
    may_be_null = bool(column.nullable) or name in table.counted
    kind = _kind_of(column.type)
    limits = _limits_of(table, column, dialect.name, is_key=is_key, rounds=rounds)
    process = column.type.dialect_impl(dialect).bind_processor(dialect)

    def check(value: Any) -> str | None:
        if value is None:
            return None if may_be_null else "is NULL, which the column does not accept"
        if type(value).__name__ in _MISSING:
            return "is not a value; write None"
        if kind is not None and (not isinstance(value, kind[0]) or type(value).__name__ in _SPANS):
            return f"is {type(value).__name__}, not {kind[1]}"
        try:
            wrong = next((it for it in (limit(value) for limit in limits) if it is not None), None)
        except (ArithmeticError, ValueError) as error:
            return f"can't be written: {error}"
        if wrong is not None:
            return wrong
        sent = value
        if process is not None:
            try:
                sent = process(value)
            except (TypeError, ValueError, OverflowError, LookupError, AttributeError, RecursionError) as error:
                return f"can't be written: {error}"
        if isinstance(sent, Number) and not isinstance(sent, _SENT):
            return f"is {type(value).__name__}, which the driver does not accept; write an int, a float or a Decimal"
        return None

    return check


def _limits_of(table: SqlTable, column: sa.Column[Any], dialect: str, *, is_key: bool, rounds: bool) -> list[Check]:
    limits: list[Check] = [_unlike_datetime] if isinstance(column.type, (sa.DateTime, sa.Date)) else []
    limits += _limits(column.type, dialect, table.character_sets.get(column.name, "utf8mb4"))
    if dialect == "sqlite" and isinstance(column.type, (sa.Numeric, sa.Float, sa.types.NullType)):
        exactly = not isinstance(column.type, sa.types.NullType) and (is_key or not rounds)
        limits.append(_unlike_float if exactly else _unlike_nan)
        if isinstance(column.type, sa.types.NullType):
            limits.append(_unlike_stored)
    limits += unkept(column.type, dialect, rounds=rounds, is_key=is_key)
    if isinstance(column.type, mysql.TIMESTAMP) and table.zone != "utc":
        limits.append(_with_zone)
    return limits


def _kind_of(column: Any) -> tuple[tuple[type, ...], str] | None:
    return next(((types, called) for kind, types, called in _KINDS if isinstance(column, kind)), None)


def _limits(column: Any, dialect: str, charset: str) -> list[Check]:
    limits: list[Check] = []
    if isinstance(column, sa.JSON):
        limits.append(_unlike_json)
    elif isinstance(column, sa.Boolean) and dialect == "postgresql":
        limits.append(lambda value: None if isinstance(value, bool) else "is an integer, not a boolean")
    elif isinstance(column, sa.String):
        limits += _limits_of_text(column, dialect, charset)
    elif type(column) in _BINARIES and dialect in ("mysql", "mariadb"):
        limits.append(_of_bytes(column.length or _BYTES.get(type(column), _LONGEST)))
    elif isinstance(column, sa.Integer) and dialect in (*_STRICT, "sqlite"):
        bits = 64 if dialect == "sqlite" else next(bits for kind, bits in _BITS if isinstance(column, kind))
        bits = _FEWER_BITS.get(type(column), bits)
        limits.append(_within(bits, unsigned=bool(getattr(column, "unsigned", False))))
    elif isinstance(column, (sa.Numeric, sa.Float)) and dialect in _STRICT:
        if dialect != "postgresql":
            limits.append(_finite)
        if column.precision is not None and not (
            isinstance(column, sa.Float) and getattr(column, "scale", None) is None
        ):
            limits.append(_below(int(column.precision), int(column.scale or 0)))
    return limits


def _limits_of_text(column: sa.String, dialect: str, charset: str) -> list[Check]:
    limits: list[Check] = [_encodable]
    if dialect == "postgresql":
        limits.append(lambda value: "has a character NUL, which Postgres can't store" if "\0" in value else None)
    if isinstance(column, sa.Enum):
        limits.append(_one_of(column.enums))
    elif dialect in _STRICT and column.length and not isinstance(column, mysql.SET):  # its members' length
        limits.append(_shorter_than(int(column.length), is_padded=isinstance(column, sa.CHAR)))
    elif type(column) in _BYTES and charset in _UTF_8:
        limits.append(_of_bytes(_BYTES[type(column)]))
    return limits


def _encodable(value: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return "has a lone surrogate, which can't be encoded"
    return None


def _unlike_json(value: Any) -> str | None:
    try:
        json.dumps(value, allow_nan=False)
        check_names((value,))
    except (TypeError, ValueError, RecursionError) as error:
        return f"can't be written: {error}"
    return None


def _unlike_datetime(value: datetime) -> str | None:
    """Return the problem with a pandas datetime, or None."""
    if value != value:  # noqa: PLR0124 - NaT
        return "is not a time; write None"
    if getattr(value, "nanosecond", 0):
        return "has nanoseconds, which the database does not keep; write .floor('us')"
    return None


def _shorter_than(length: int, *, is_padded: bool) -> Check:
    """Return the check of the length of a text; the database pads a text of fixed length with spaces."""

    def check(value: str) -> str | None:
        found = len(value.rstrip(" ") if is_padded else value)
        return f"has {found} characters; the column takes {length}" if found > length else None

    return check


def _with_zone(value: datetime) -> str | None:
    if value.tzinfo is None:
        return None
    return "has a zone, and the session's time_zone is not UTC; set it to '+00:00', or write the session's time"


def _one_of(members: Sequence[str]) -> Check:
    folded = {member.casefold() for member in members}  # the database may ignore case
    return lambda value: None if value.casefold() in folded else f"is not one of {', '.join(map(repr, members))}"


def _of_bytes(length: int) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, str | bytes | bytearray | memoryview):
            return None
        found = len(value.encode() if isinstance(value, str) else value)
        return f"has {plural(found, 'byte')}; the column takes {length}" if found > length else None

    return check


def _unlike_float(value: Any) -> str | None:
    """Return the problem with a value that SQLite would not keep exactly. Its numbers are floats."""
    if (wrong := _unlike_nan(value)) is not None:
        return wrong
    if isinstance(value, Decimal) and Decimal(repr(float(value))) != value:
        return "has more digits than SQLite keeps; use a column of text"
    if isinstance(value, Integral) and not _is_sqlite_int(int(value)):
        return "has more digits than SQLite keeps; use a column of text"
    return None


def _unlike_nan(value: Any) -> str | None:
    return "would be stored as NULL by SQLite" if isinstance(value, Number) and value != value else None  # noqa: PLR0124


def _unlike_stored(value: Any) -> str | None:
    if type(value) in (bool, int, float, str, bytes):
        return None
    return f"is {type(value).__name__}, which a column without a type does not keep; write a number, text or bytes"


def _is_sqlite_int(value: int) -> bool:
    """Whether a numeric column keeps an integer exactly: the driver sends it as a float."""
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _finite(value: Any) -> str | None:
    return None if math.isfinite(value) else "is not finite, which the database can't store"


def _below(precision: int, scale: int) -> Check:
    limit = 10 ** (precision - scale)

    def check(value: Any) -> str | None:
        if not math.isfinite(value) or abs(_rounded(value, scale)) < limit:
            return None
        return f"is out of the column's range, below {limit}"

    return check


def _rounded(value: Any, scale: int) -> Any:
    """Return a number as the database rounds it."""
    if isinstance(value, Integral):
        return value
    number = Decimal(repr(float(value))) if isinstance(value, float) else value
    if not isinstance(number, Decimal):
        return value
    with localcontext(Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)):
        return number.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP) if number.adjusted() < 100 else number  # noqa: PLR2004


def _within(bits: int, *, unsigned: bool) -> Check:
    least, most = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return lambda value: None if least <= value <= most else f"is out of the column's range, {least} to {most}"


_PLAIN = frozenset({bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta, type(None)})


def plain_batch(batch: RowBatch, without_zone: Collection[str] = ()) -> RowBatch:
    """Return a batch with numbers, text and times of numpy, pandas and subclasses replaced by equal Python values.

    Drivers do not handle the originals: SQLite's stores a numpy integer as its bytes, and MySQL's writes the zone of a
    Timestamp, or the name of a member of an enum, into the statement.

    Args:
        batch: the rows.
        without_zone: columns of times without zones, in which a time with a zone is written in UTC.
    """
    if not _PLAIN.issuperset(map(type, chain.from_iterable(batch.rows))):
        batch = batch._replace(rows=[tuple(map(plain_value, row)) for row in batch.rows])
    before = int(batch.operation == "merge")
    for place, name in enumerate(batch.columns, before):
        if name in without_zone and any(getattr(row[place], "tzinfo", None) is not None for row in batch.rows):
            batch = batch._replace(rows=[(*row[:place], _in_utc(row[place]), *row[place + 1 :]) for row in batch.rows])
    return batch


def _in_utc(value: Any) -> Any:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError as error:
        raise SqlError(
            f"{short_repr(value)} has no time in UTC ({error}); write one within the years 1 to 9999"
        ) from None


def plain_value(value: Any) -> Any:
    """Return the value of Python's own that one of numpy, pandas or a subclass equals; others as they are."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    for base, plain in _PLAIN_OF.items():
        if isinstance(value, base):
            return plain(value)
    if kind.__module__ == "numpy" and value.shape == () and kind.__name__ not in ("datetime64", "timedelta64"):
        return value.item()
    if isinstance(value, datetime) and value == value and not getattr(value, "nanosecond", 0):  # noqa: PLR0124 - NaT
        return datetime.combine(value.date(), value.timetz())
    if isinstance(value, timedelta) and value == value and not getattr(value, "nanoseconds", 0):  # noqa: PLR0124 - NaT
        return timedelta(value.days, value.seconds, value.microseconds)
    return value


_PLAIN_OF: Mapping[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    bytearray: bytes,
    memoryview: bytes,
    Decimal: Decimal,
}
"""The values of subclasses, such as those of enums, whatever methods they have: numpy's item() drops NUL at the end."""
