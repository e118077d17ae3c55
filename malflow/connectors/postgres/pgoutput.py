"""The messages of `pgoutput`, protocol 1: relations, and rows decoded by the types of their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, TypeAlias

import psycopg
from psycopg import pq

from malflow.connectors.postgres.adapting import READING
from malflow.connectors.postgres.errors import PostgresError
from malflow.connectors.postgres.names import shown_name
from malflow.connectors.tables.change import UNCHANGED, KeyOnly

__all__ = ["Relation", "lsn_number", "lsn_text", "read_relation"]

Loader: TypeAlias = Callable[[bytes], Any]

_NULL, _TEXT = b"nt"
_INT = Struct(">i").unpack_from
_SHORT = Struct(">H").unpack_from

_FAST: dict[int, Loader] = {
    16: b"t".__eq__,
    20: int,
    21: int,
    23: int,
    25: bytes.decode,
    26: int,
    700: float,
    701: float,
    1042: bytes.decode,
    1043: bytes.decode,
}
"""Loaders of frequent types that are faster than psycopg's and return the same."""


class Relation:
    """A table as the stream last described it; the stream describes it again after every change of its columns."""

    __slots__ = ("_keys", "_loaders", "_names", "_width", "is_wanted", "oid", "table")

    def __init__(
        self, oid: int, table: str, names: tuple[str, ...], keys: frozenset[str], loaders: list[Loader]
    ) -> None:
        self.oid, self.table = oid, table
        self.is_wanted = True
        self._names, self._keys, self._loaders = names, keys, loaders
        self._width = len(names).to_bytes(2, "big")

    def row(self, data: bytes, at: int) -> tuple[dict[str, Any], int]:
        """Return the row with a tuple at an offset, and the offset after it."""
        values: list[Any] = []
        add = values.append
        if data[at : at + 2] != self._width:
            raise PostgresError(
                f"table {self.table}: a row of the stream does not have the columns described before it"
            )
        at += 2
        try:
            for load in self._loaders:
                if data[at] == _TEXT:
                    begin = at + 5
                    at = begin + _INT(data, at + 1)[0]
                    add(load(data[begin:at]))
                else:
                    add(None if data[at] == _NULL else UNCHANGED)
                    at += 1
        except (ValueError, psycopg.Error, OverflowError) as error:
            raise self._undecodable(data[begin:at], self._names[len(values)], error) from error
        return dict(zip(self._names, values)), at  # noqa: B905 - the width was compared

    def old_row(self, data: bytes, at: int, kind: int) -> tuple[dict[str, Any], int]:
        """Return the old row of a change: only its key if `kind` is ``K``, all of it if ``O``."""
        row, at = self.row(data, at)
        if kind == ord("O"):
            return row, at
        return KeyOnly((name, value) for name, value in row.items() if name in self._keys), at

    def _undecodable(self, text: bytes, column: str, error: Exception) -> PostgresError:
        value = text.decode(errors="backslashreplace")
        return PostgresError(
            f"table {self.table}, column {column!r}: Python cannot represent {value[:200]!r} ({error}); "
            f"pass text=[{column!r}] to get the column as Postgres writes it"
        )


def read_relation(
    data: bytes, at: int, text: frozenset[str], bases: Callable[[Iterable[int]], Mapping[int, int]]
) -> Relation:
    """Return the relation that a message describes.

    Args:
        data: the message.
        at: the offset of the relation's oid.
        text: columns that stay as Postgres writes them.
        bases: returns the base types of domains, for those oids that psycopg does not know.
    """
    (oid,) = _INT(data, at)
    schema, name, rest = data[at + 4 :].split(b"\0", 2)
    at, names, keys, types = 3, [], [], []
    for _ in range(_SHORT(rest, 1)[0]):
        end = rest.index(b"\0", at + 1)
        column = rest[at + 1 : end].decode()
        names.append(column)
        if rest[at] & 1:
            keys.append(column)
        types.append(_INT(rest, end + 1)[0] & 0xFFFFFFFF)
        at = end + 9
    below = bases({kind for kind in types if psycopg.adapters.types.get(kind) is None})
    loaders = [
        bytes.decode if column in text else _loader(below.get(kind, kind))
        for column, kind in zip(names, types, strict=True)
    ]
    shown = shown_name(schema.decode() or "pg_catalog", name.decode())
    return Relation(oid, shown, tuple(names), frozenset(keys), loaders)


def _loader(oid: int) -> Loader:
    if oid in _FAST:
        return _FAST[oid]
    kind = READING.get_loader(oid, pq.Format.TEXT)
    return bytes.decode if kind is None else kind(oid, READING).load


def lsn_number(text: str) -> int:
    """Return a position in the server's log as a number.

    >>> lsn_number("16/B374D848")
    97500059720
    """
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(number: int) -> str:
    """Return a position in the server's log as Postgres writes it.

    >>> lsn_text(97500059720)
    '16/B374D848'
    """
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
