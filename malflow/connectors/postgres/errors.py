"""Errors of a Postgres server, a table or a slot; their texts have no secrets."""

from __future__ import annotations

from malflow.errors import MalflowError

__all__ = ["PositionLost", "PostgresError"]


class PostgresError(MalflowError, RuntimeError):
    """A Postgres server refused a request, or a table or value does not meet the connector's needs."""


class PositionLost(PostgresError):
    """The server no longer has the changes after a source's position; continuing would lose some of them."""
