"""A change of a row, as `PostgresChanges` emits it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from malflow.errors import MalflowError

__all__ = ["UNCHANGED", "Change", "KeyOnly", "Kind", "NotSent", "Unchanged"]

Kind = Literal["insert", "update", "delete", "truncate"]


class Unchanged(Enum):
    """The type of `UNCHANGED`."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged.UNCHANGED
"""A large value that an update did not change, so that Postgres does not send it. It is not NULL.

With ``alter table ... replica identity full`` every value is sent.
"""


class NotSent(MalflowError, KeyError):
    """A program read a column of the old row that the server does not send: it sends only the row's key."""

    def __str__(self) -> str:
        return str(self.args[0])


class KeyOnly(dict[str, Any]):
    """The key of an old row; reading another column raises `NotSent`. A copy is a plain dict."""

    def __missing__(self, column: str) -> Any:
        raise NotSent(
            f"column {column!r} of the old row was not sent, only its key {dict(self)!r}; "
            "alter table ... replica identity full, and pass require_old=True to PostgresChanges"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class Change(NamedTuple):
    """One change of one row, or the truncation of a table.

    Attributes:
        kind: ``"insert"`` (also each row of the first copy), ``"update"``, ``"delete"`` or ``"truncate"``.
        table: schema and name, such as ``public.orders``; in double quotes where SQL needs them.
        old: the part of the old row that the server sends. Deletes: the key, or the whole row if the table's replica
            identity is full. Updates: the key if it has changed, the whole row if the identity is full, else None.
            Reading a column that was not sent raises an error. `PostgresChanges` with ``require_old`` rejects such
            changes.
        new: the new row, by column; None for deletes and truncations. A value may be `UNCHANGED`.
        lsn: the position of the transaction's commit in the server's log; for rows of a copy, the copy's position.
        time: the time of the transaction's commit.
    """

    kind: Kind
    table: str
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None
    lsn: int
    time: datetime
