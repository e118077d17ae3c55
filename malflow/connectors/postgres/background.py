"""The end of a connection on which another thread may be asking."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from malflow.connectors.background import Background

__all__ = ["close_after"]

_CANCEL_SECONDS = 1.0
_PATIENCE = 2.0
"""How long a canceled query is waited for; later, its connection is closed in the background."""


def close_after(asked: Background[Any] | None, connection: psycopg.Connection[Any]) -> None:
    """Cancel what is asked on a connection, and close it as soon as nothing is.

    A connection that is closed while another thread uses it takes the whole process along.
    """
    if asked is not None and not asked.done:
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=_CANCEL_SECONDS)
        asked.join(_PATIENCE)
        if not asked.done:
            Background(lambda: _close_at_last(asked, connection))
            return
    connection.close()


def _close_at_last(asked: Background[Any], connection: psycopg.Connection[Any]) -> None:
    asked.join()
    connection.close()
