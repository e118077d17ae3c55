"""A database by its URL: an engine created on first use, errors without secrets, and retries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from malflow.checks import check_mapping
from malflow.connectors.remote import Attention, RemoteSystem, ServerSilent, attended
from malflow.durations import Duration
from malflow.errors import GraphError, MalflowError, MissingDependency
from malflow.store.redaction import is_secret_name, secrets_in

__all__ = [
    "Database",
    "SqlError",
    "largest_packet",
    "without_references",
]


class SqlError(MalflowError, RuntimeError):
    """A database refused a statement, or a table or value does not meet the connector's needs."""


T = TypeVar("T")

_REFUSED = {
    "hide_parameters": "values never show in messages of the engine",
    "skip_autocommit_rollback": "the sink needs transactions",
    "execution_options": "the sink sets those of its statements",
}
_PACKAGES = {
    "mysqldb": "mysqlclient",
    "mariadbconnector": "mariadb",
    "mysqlconnector": "mysql-connector-python",
    "psycopg": "'psycopg[binary]'",
}
"""The packages of drivers whose names differ."""

_PERMANENT = re.compile(
    r"access denied|authentication|password|no pg_hba|does not exist|unknown database|unable to open|not permitted"
    r"|not a database|login failed|ORA-01017",
    re.IGNORECASE,
)
_CONTENTION = re.compile(
    r"database (table |schema )?is locked|deadlock|lock wait timeout|could not serialize|can't serialize|ORA-08177",
    re.IGNORECASE,
)
_INTERRUPTED = 1317  # by KILL QUERY
_PACKET = "malflow_packet"
_ADDED_MODES = ("STRICT_ALL_TABLES", "NO_AUTO_VALUE_ON_ZERO")
_DROPPED_MODES = frozenset({"EMPTY_STRING_IS_NULL", "NO_BACKSLASH_ESCAPES"})
_PASSWORD = re.compile(r"(?:pwd|password)\s*=\s*(\{[^}]*\}|[^;]*)", re.IGNORECASE)


@dataclass(slots=True)
class _Attempt:
    """An attempt at an action, on a thread; it may be abandoned before the thread has ended."""

    is_over: bool = False


_ATTEMPT: ContextVar[_Attempt | None] = ContextVar("malflow_sql_attempt", default=None)


class Database(RemoteSystem[SqlError]):
    """A database. Its repr shows driver, host and name, never a secret.

    A pickled copy has no password, query or settings; if the original had any, the copy can't connect.

    Args:
        url: a URL of SQLAlchemy's.
        settings: arguments of `sqlalchemy.create_engine`.
        retry_for: how long to retry a lost connection before the error surfaces.
        asked_by: the class that uses the database, for messages.

    Raises:
        GraphError: if the URL or a setting is wrong.
        MissingDependency: if the dialect's driver is not installed.
    """

    error = SqlError
    refusals = (exc.SQLAlchemyError, ServerSilent)

    def __init__(
        self, url: str | sa.URL, settings: Mapping[str, Any] | None, retry_for: Duration, asked_by: str
    ) -> None:
        super().__init__(asked_by, retry_for)
        check_mapping(asked_by, "settings", settings, "arguments of sqlalchemy.create_engine")
        self._url = _parsed(url, asked_by)
        self._settings = dict(settings or {})
        for name, why in _REFUSED.items():
            if name in self._settings:
                raise GraphError(f"{asked_by} got the setting '{name}'; remove it: {why}")
        if str(self._settings.get("isolation_level", "")).upper() == "AUTOCOMMIT":
            raise GraphError(f"{asked_by} got the setting 'isolation_level'; the sink needs transactions: remove it")
        self._secrets = _secrets(self._url, self._settings)
        self._is_complete = True
        self._engine: sa.Engine | None = None
        self._made().dispose()

    @property
    def dialect(self) -> sa.Dialect:
        """SQLAlchemy's dialect of the database."""
        return self._made().dialect

    @contextmanager
    def transaction(self, *, undo: bool = False) -> Iterator[sa.Connection]:
        """Open a transaction and return its connection; commit at the end, unless an error is raised.

        Args:
            undo: whether to roll back instead.
        """
        if not self._is_complete:
            raise SqlError(f"a copy of {self._asked_by} has no password, since it was pickled; make a new one")
        with self._made().connect() as connection:
            self._check_transactions(connection)
            with connection.begin() as transaction:
                yield connection
                attempt = _ATTEMPT.get()
                if undo or (attempt is not None and attempt.is_over):
                    transaction.rollback()

    def retry(self, action: Callable[[], T], what: str) -> T:
        """Return the result of an idempotent action; repeat it while the connection is lost or the server is silent.

        Raises:
            SqlError: if that lasts for longer than `retry_for`, or the database reports an error.
        """
        return super().retry(lambda: self._attended(action), what)

    @staticmethod
    def is_lost(error: BaseException) -> bool:
        """Whether an error comes from the connection or from contention; a retry may then succeed."""
        if isinstance(error, ServerSilent):
            return True
        if not isinstance(error, exc.DBAPIError):
            return False
        if error.connection_invalidated or _CONTENTION.search(str(error.orig)) or _code(error) == _INTERRUPTED:
            return True
        outside = isinstance(error, exc.OperationalError | exc.InterfaceError) and error.statement is None
        return outside and not _PERMANENT.search(str(error.orig))

    @staticmethod
    def reason(error: BaseException) -> str:
        """Return the driver's error text, without the statement and its values."""
        if isinstance(error, exc.StatementError) and error.orig is not None:
            return str(error.orig)
        return str(error)

    def _attended(self, action: Callable[[], T]) -> T:
        """Return the result of `action`; if the server stops answering, raise, and commit none of its transactions."""
        if self._url.get_backend_name() == "sqlite":  # a file
            return action()
        attempt = _Attempt()

        def run() -> T:
            _ATTEMPT.set(attempt)  # of this thread
            return action()

        try:
            return attended(run, Attention(self._answers, self.retry_for))
        except ServerSilent:
            attempt.is_over = True
            self.close()
            raise

    def _answers(self) -> bool:
        """Whether the server answers on another connection; an error from the server is an answer."""
        engine = self._new_engine()
        try:
            with engine.connect():
                return True
        except exc.DBAPIError as error:
            return not self.is_lost(error)
        finally:
            engine.dispose()

    def close(self) -> None:
        """Close the connections; the next transaction opens a new one."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def _made(self) -> sa.Engine:
        if self._engine is None:
            self._engine = self._new_engine()
        return self._engine

    def _new_engine(self) -> sa.Engine:
        try:
            engine = sa.create_engine(self._url, hide_parameters=True, **{**_pool_of(self._url), **self._settings})
        except ImportError as error:
            driver = self._url.get_dialect().driver
            raise MissingDependency(
                f"{self._asked_by} needs a driver of {self!r}, and {error.name or driver} is not installed; "
                f"pip install {_PACKAGES.get(driver, driver)}, or name another one in the URL: "
                f"{self._url.get_backend_name()}+driver://"
            ) from None
        except (exc.SQLAlchemyError, TypeError, ValueError) as error:
            said = self.without_secrets(str(error))
            raise GraphError(f"{self._asked_by} got a setting that SQLAlchemy refuses for {self!r}: {said}") from None
        if engine.dialect.name in ("mysql", "mariadb"):
            sa.event.listen(engine, "connect", _prepare_session)
            sa.event.listen(engine, "before_cursor_execute", _split_statements)
        return engine

    def _check_transactions(self, connection: sa.Connection) -> None:
        driver = connection.connection.dbapi_connection
        try:
            commits_itself = connection.dialect.detect_autocommit_setting(driver)  # type: ignore[arg-type] # open
        except (AttributeError, NotImplementedError):  # an older SQLAlchemy, or a driver that can't say
            return
        if commits_itself or getattr(driver, "autocommit", False) is True:
            raise SqlError(f"{self._asked_by} needs transactions; remove autocommit from the options of {self!r}")

    def __getstate__(self) -> dict[str, Any]:
        url, state = self._url, {**self.__dict__, "_engine": None}
        if not (url.password or url.query or self._settings):
            return state
        shown = sa.URL.create(url.drivername, url.username, host=url.host, port=url.port, database=url.database)
        return {**state, "_url": shown, "_settings": {}, "_secrets": [], "_is_complete": False}

    def __repr__(self) -> str:
        host = f"[{self._url.host}]" if ":" in (self._url.host or "") else self._url.host or ""
        port = f":{self._url.port}" if self._url.port else ""
        return f"{self._url.drivername}://{host}{port}/{self._url.database or ''}"


def _pool_of(url: sa.URL) -> dict[str, Any]:
    """Return settings that reopen an SQLite file for each transaction, since it may have been replaced."""
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return {"poolclass": sa.NullPool} if is_file and not url.query else {}


def _prepare_session(connection: Any, record: Any) -> None:
    """Make a session keep every value, or refuse it, and note the largest statement that the server accepts.

    A strict mode refuses a value that does not fit instead of truncating it. The other modes would give a row
    with the number 0 another number, take an empty text for NULL, or read a backslash otherwise than the driver writes
    it.
    """
    with closing(connection.cursor()) as cursor:
        cursor.execute("select @@max_allowed_packet, @@session.sql_mode")
        packet, modes = cursor.fetchone()
        kept = [it for it in modes.split(",") if it and it not in _DROPPED_MODES]
        cursor.execute(f"set session sql_mode = '{','.join([*kept, *_ADDED_MODES])}'")
        record.info[_PACKET] = int(packet)


def _split_statements(connection: sa.Connection, cursor: Any, *_: object) -> None:
    """Make drivers that write many rows in one statement keep it within the server's limit."""
    if hasattr(cursor, "max_stmt_length"):
        most = connection.info.get(_PACKET)
        if most is not None:
            cursor.max_stmt_length = min(cursor.max_stmt_length, max(1, most - 1024))


def largest_packet(connection: sa.Connection) -> int | None:
    """Return the largest size of a statement in bytes; None if the database has no limit."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return None
    return int(connection.exec_driver_sql("select @@max_allowed_packet").scalar_one())


@contextmanager
def without_references(connection: sa.Connection) -> Iterator[None]:
    """Leave foreign keys unchecked in the block, within a transaction that is rolled back.

    Another sink may have yet to write the row that a row refers to.
    """
    match connection.dialect.name:
        case "mysql" | "mariadb":
            connection.exec_driver_sql("set @malflow_references = @@foreign_key_checks, foreign_key_checks = 0")
            try:
                yield
            finally:
                if not connection.invalidated:
                    connection.exec_driver_sql("set foreign_key_checks = @malflow_references")
        case "sqlite":
            connection.exec_driver_sql("pragma defer_foreign_keys = on")  # until the end of the transaction
            yield
        case _:
            yield


def _code(error: exc.DBAPIError) -> object:
    arguments = getattr(error.orig, "args", ())
    return arguments[0] if arguments else None


def _parsed(url: str | sa.URL, asked_by: str) -> sa.URL:
    wanted = "write 'mysql+pymysql://user@host/database', or 'sqlite:///file.db'"
    if not isinstance(url, str | sa.URL):
        raise GraphError(
            f"{asked_by} url must be a text or a URL of SQLAlchemy's; got a {type(url).__name__}; {wanted}"
        )
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        raise GraphError(f"{asked_by} got a URL that SQLAlchemy can't parse; {wanted}") from None
    if "@" in (parsed.host or ""):  # the part before it belongs to the password
        raise GraphError(f"{asked_by} got a URL with an '@' in its password; write %40 for it")
    try:
        dialect = parsed.get_dialect()
    except exc.NoSuchModuleError:
        raise GraphError(f"{asked_by}: SQLAlchemy has no dialect '{parsed.drivername}'; {wanted}") from None
    if dialect.is_async:
        raise GraphError(f"{asked_by}: '{parsed.drivername}' is a driver for asyncio; name another one")
    return parsed


def _secrets(url: sa.URL, settings: Mapping[str, Any]) -> list[str]:
    found = [url.password] if url.password else []
    for name, value in url.query.items():
        for text in (value,) if isinstance(value, str) else value:
            inner = [it.strip("{} ") for it in _PASSWORD.findall(text)]
            found += [*inner, *([text] if inner or is_secret_name(name) else [])]
    return [secret for secret in (*found, *secrets_in(settings)) if secret]
