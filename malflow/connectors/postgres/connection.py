"""Connections to a Postgres server: settings, closing, errors without secrets, and retries."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo

from malflow.connectors.postgres.adapters import READING
from malflow.connectors.remote import Attention, Background, RemoteSystem, ServerSilent
from malflow.durations import Duration
from malflow.errors import GraphError, MalflowError
from malflow.failures import is_stopping

__all__ = [
    "PositionLost",
    "PostgresError",
    "PostgresServer",
    "close_after",
]


class PostgresError(MalflowError, RuntimeError):
    """A Postgres server refused a request, or a table or value does not meet the connector's needs."""


class PositionLost(PostgresError):
    """The server no longer has the changes after a source's position; continuing would lose some of them."""


T = TypeVar("T")

_SECRETS = ("password", "sslpassword")
_REFUSED = {
    "replication": "the connector sets it where it needs it",
    "client_encoding": "the connector reads and writes UTF-8",
}
_KEEPALIVES = {"keepalives_idle": "20", "keepalives_interval": "5", "keepalives_count": "3"}
"""Keepalives: the system notices after half a minute that a proxy or firewall has dropped a connection."""

_LONGEST_CONNECT, _SHORTEST_CONNECT = 10.0, 2.0
_LONGEST_RETRY = 20 * 86400.0
"""Seconds; the server's timeouts hold less than 25 days."""

_STEP = 0.1
"""The seconds between two checks for a stopping run while a connection is made; its success ends the wait at once. Half
of it wakes twice as often, double stops later."""

_SERVERS_OWN = "FATAL:"

_SESSION = (
    "set client_encoding to 'UTF8'; set timezone to 'UTC'; set datestyle to 'ISO'; set intervalstyle to 'postgres';"
    "set extra_float_digits to 1; set bytea_output to 'hex'"
)
"""The text formats that psycopg reads; the same for queries and for a stream of changes."""

_PERMANENT = (
    "authentication failed",
    "certificate",
    "does not exist",
    "does not support SSL",
    "invalid port",
    "is not permitted",
    "no pg_hba.conf entry",
    "no password supplied",
)
_LOST = ("08", "57P", "53")
"""Classes of SQLSTATE: connection failures, a server that shuts down or starts, too few resources."""

_IDLE = "25P03"
"""SQLSTATE of a session that the server ended because it was idle in a transaction for too long."""

_AGAIN = ("40001", "40P01", "57014")
"""SQLSTATE of errors to retry: a serialization failure, a deadlock, or a cancelled statement."""


class AttendedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that stops waiting for a server that does not answer on other connections either.

    Attributes:
        attention: notices that the server is silent; None while the connection is being made.
    """

    attention: Attention | None = None

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for the server.

        Raises:
            psycopg.OperationalError: if it does not answer; the connection is then closed.
        """
        if self.attention is None:
            return super().wait(gen, *args, **options)
        try:
            return super().wait(_attended(gen, self.attention), *args, **options)
        except ServerSilent as silent:
            self.pgconn.finish()
            raise psycopg.OperationalError(str(silent)) from None


def _attended(gen: Generator[Any, Any, T], attention: Attention) -> Generator[Any, Any, T]:
    """Wait as psycopg does, but wake up every tenth of a second to check on the server."""
    attention.heard()
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                attention.heard()
            else:
                attention.check()
            wanted = gen.send(ready)
    except StopIteration as end:
        value: T = end.value
        return value


class PostgresServer(RemoteSystem[PostgresError]):
    """A server and a database, as a DSN. Its repr shows host, port and database, never a secret.

    Args:
        dsn: a libpq connection string or URL; every setting of libpq is passed through.
        retry_for: how long to retry a lost connection before the error surfaces.
        asked_by: the class that uses the server, for messages.

    Raises:
        GraphError: if the DSN can't be parsed, or has a setting that the connector sets itself.
    """

    error = PostgresError
    refusals = (psycopg.Error,)

    def __init__(self, dsn: str, retry_for: Duration, asked_by: str) -> None:
        super().__init__(asked_by, retry_for)
        if not isinstance(dsn, str):
            raise GraphError(f"{asked_by} dsn must be a text; got a {type(dsn).__name__}")
        if _is_misread(dsn):
            raise GraphError(
                f"{asked_by} got a DSN with an '@' or '/' in its user or password, so that libpq would read a part of "
                "the password as the host; write %40 for '@' and %2F for '/'"
            )
        try:
            settings = conninfo.conninfo_to_dict(dsn)
        except psycopg.Error:
            malformed = (
                f"{asked_by} got a DSN that libpq can't parse; write 'host=... dbname=...' or 'postgresql://...'"
            )
            raise GraphError(malformed) from None  # libpq's message quotes a part of it
        for name, why in _REFUSED.items():
            if settings.get(name) is not None:
                raise GraphError(f"{asked_by} got a DSN with '{name}'; remove it: {why}")
        self.retry_for = min(self.retry_for, _LONGEST_RETRY)
        patience = str(int(min(_LONGEST_CONNECT, max(_SHORTEST_CONNECT, self.retry_for))))
        self._settings: dict[str, Any] = {
            "connect_timeout": patience,
            "application_name": "malflow",
            **_KEEPALIVES,
            **settings,
        }
        self._secrets = [str(settings[name]) for name in _SECRETS if settings.get(name)]

    @property
    def application(self) -> str:
        """The name under which the server lists the connector's sessions."""
        return str(self._settings["application_name"])

    def connect(self, **more: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a new connection in autocommit mode.

        Raises:
            psycopg.OperationalError: if the connection fails; its text has no secret.
        """
        try:
            connection = self._opened({**self._settings, **more})
        except psycopg.Error as error:
            raise psycopg.OperationalError(self.without_secrets(str(error))) from None
        connection.attention = self.attention()
        connection.execute(_SESSION)
        connection.prepare_threshold = None  # a connection pooler may use another session for each transaction
        return connection

    def attention(self) -> Attention:
        """Return a guard that notices when the server stops answering."""
        return Attention(self._answers, self.retry_for)

    def _opened(self, settings: dict[str, Any]) -> AttendedConnection:
        """Connect on another thread. A run that is stopping need not wait for it."""
        opening = Background(lambda: AttendedConnection.connect(**settings, autocommit=True, context=READING))
        stopping_since: float | None = None
        while not opening.done:
            opening.join(_STEP)
            if is_stopping():
                stopping_since = stopping_since or time.monotonic()
                if time.monotonic() - stopping_since > 1 and not opening.done:
                    Background(lambda: opening.result().close())
                    raise psycopg.OperationalError("the run is stopping, and the server has not answered")
        return opening.result()

    def _answers(self) -> bool:
        """Whether the server answers on another connection; an error from the server is an answer."""
        try:
            psycopg.connect(**self._settings).close()
        except psycopg.Error as error:
            return _SERVERS_OWN in str(error)
        return True

    @staticmethod
    def is_lost(error: BaseException) -> bool:
        """Whether an error comes from the connection or from contention; a retry may then succeed."""
        if isinstance(error, psycopg.Error) and error.sqlstate == _IDLE:
            return True
        if not isinstance(error, psycopg.OperationalError):
            return False
        state = error.sqlstate
        if state is None:
            return not any(text in str(error) for text in _PERMANENT)
        return state.startswith(_LOST) or state in _AGAIN

    @staticmethod
    def reason(error: BaseException) -> str:
        """Return the server's error text: message, detail, context and hint."""
        if not isinstance(error, psycopg.Error) or error.diag.message_primary is None:
            return str(error)
        diag = error.diag
        parts = (diag.message_primary, diag.message_detail, diag.context, diag.message_hint)
        return "; ".join(part for part in parts if part)

    def __repr__(self) -> str:
        shown = {name: self._settings.get(name) for name in ("host", "port", "dbname")}
        return " ".join(f"{name}={value}" for name, value in shown.items() if value) or "the default server"


def _is_misread(dsn: str) -> bool:
    """Whether libpq reads a part of a URL's password as its host or database, and would quote it in its errors."""
    rest = dsn.partition("://")[2] if dsn.startswith(("postgres://", "postgresql://")) else ""
    userinfo, _, hosts = rest.partition("@")
    named = rest if "/" in userinfo else hosts
    return "@" in named.partition("?")[0]


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
