"""What can be wrong with a database or a table, in words that show no secret."""

from __future__ import annotations

from malflow.errors import MalflowError

__all__ = ["SqlError"]


class SqlError(MalflowError, RuntimeError):
    """A database refused something, or a table or value is not as the connector needs it."""
