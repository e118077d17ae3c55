"""What can be wrong with a Postgres server, a table or a slot, in words that show no secret."""

from __future__ import annotations

from malflow.errors import MalflowError

__all__ = ["PositionLost", "PostgresError"]


class PostgresError(MalflowError, RuntimeError):
    """A Postgres server refused something, or a table or value is not as the connector needs it."""


class PositionLost(PostgresError):
    """The server no longer has the changes after a source's position; continuing would lose some of them."""
