"""Errors of a database or a table; their texts have no secrets."""

from __future__ import annotations

from malflow.errors import MalflowError

__all__ = ["SqlError"]


class SqlError(MalflowError, RuntimeError):
    """A database refused a statement, or a table or value does not meet the connector's needs."""
