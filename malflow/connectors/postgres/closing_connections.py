"""Close connections that another thread may still be using."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from malflow.connectors.background import Background

__all__ = ["close_after"]

_CANCEL_SECONDS = 1.0
"""The most seconds to send the request to cancel; it needs a connection of its own. A longer time delays the end of a
run if the server is gone."""

_PATIENCE = 2.0
"""Seconds to wait for a cancelled query; after that, its connection is closed in the background."""


def close_after(asked: Background[Any] | None, connection: psycopg.Connection[Any]) -> None:
    """Cancel the query that is running on a connection, and close the connection once it is idle.

    Closing a connection while another thread uses it crashes the process.
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
