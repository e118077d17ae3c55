"""Rows of a query as Python values; an error names a value that Python cannot represent."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from malflow.connectors.postgres.errors import PostgresError

__all__ = ["fetched"]

_SHOWN = 200
"""The most characters of a value in a message: some lines of a terminal. Dates and numbers fit as a whole."""


def fetched(cursor: psycopg.Cursor[tuple[Any, ...]], what: str, mend: str) -> list[tuple[Any, ...]]:
    """Return all rows.

    Args:
        cursor: the cursor, after the query was executed.
        what: the table or query, for the error.
        mend: how to get a column as text; it may contain ``{column!r}``.

    Raises:
        PostgresError: if Python cannot represent a value; the error names the column and the value.
    """
    try:
        return cursor.fetchall()
    except (psycopg.DataError, ValueError, OverflowError) as error:
        place = _place_of_bad_value(cursor)
        if place is None:
            raise
        column, value = place
        cure = mend.format(column=column)
        raise PostgresError(
            f"{what}, column {column!r}: Python cannot represent {value[:_SHOWN]!r} ({error}); {cure} to get the "
            "column as Postgres writes it"
        ) from None


def _place_of_bad_value(cursor: psycopg.Cursor[Any]) -> tuple[str, str] | None:
    result = cursor.pgresult
    if result is None:
        return None
    transformer = Transformer(cursor)
    for at, column in enumerate(cursor.description or ()):
        loader = transformer.get_loader(column.type_code, pq.Format.TEXT)
        for row in range(result.ntuples):
            raw = result.get_value(row, at)
            try:
                if raw is not None:
                    loader.load(raw)
            except (psycopg.DataError, ValueError, OverflowError):
                return column.name, (raw or b"").decode(errors="backslashreplace")
    return None
