"""Which errors of a database are about rows, and so for good, rather than about the table or the server."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import exc

from malflow.connectors.sql.database import SqlError

__all__ = ["BOUND", "is_about_row", "marked"]

BOUND = re.compile("binding parameter|can not be used", re.IGNORECASE)
"""What a driver says of a value that it can't send."""

_ABOUT_ROWS = frozenset(
    {
        1048,  # NULL in a column that has none
        1062,  # a key that exists
        1153,  # a packet that is too large
        1264,  # out of range
        1265,  # truncated
        1292,  # an incorrect value
        1366,  # an incorrect value, such as a character that the column does not have
        1367,  # an illegal value
        1406,  # too long
        1411,  # an incorrect value for a function
        1451,  # a row that others refer to
        1452,  # a row that refers to none
        1525,  # an incorrect value
        1526,  # no partition
        1644,  # a trigger's signal
        3140,  # no JSON
        4025,  # a check
        4038,  # no JSON
    }
)
"""The numbers of errors of MariaDB and MySQL whose classes differ from driver to driver."""

_CLASSES = ("22", "23", "44", "45", "P0001")
"""The beginnings of the states of SQL of errors about rows: values, constraints, views with checks, and raised ones."""


def is_about_row(error: BaseException) -> bool:
    """Whether a database rejects a row for good, as far as the driver tells."""
    if not isinstance(error, exc.DBAPIError):
        return not isinstance(error, exc.SQLAlchemyError) or isinstance(error, exc.StatementError)
    original: Any = error.orig
    state = getattr(original, "sqlstate", None)
    if isinstance(state, str) and not state.startswith("HY"):
        return state.startswith(_CLASSES)
    if BOUND.search(str(original)) or (original.args and original.args[0] in _ABOUT_ROWS):
        return True
    return isinstance(error, exc.DataError | exc.IntegrityError)


def marked(refusal: SqlError, error: BaseException) -> SqlError:
    """Return an error that says whether its cause is about rows."""
    refusal.refuses_records = is_about_row(error)
    return refusal
