"""Paths and URLs in quotes as tables: their columns, their rows, and whether they end."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from malflow.cli.sql.guessing import Guess, create_table, has_values, of_rows, of_schema, of_texts
from malflow.cli.sql.standard_input import InputSource, StandardInput
from malflow.connectors.address import Address
from malflow.connectors.by_name import Connection, connect
from malflow.connectors.files.typed import DELIMITERS
from malflow.errors import GraphError, MalflowError, OperatorError
from malflow.events import Event, Run, TickFinished
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.sinks.contract import StatelessSinkImpl
from malflow.sql.bind.sources import path_name
from malflow.sql.declared import expanded
from malflow.sql.text import NOWHERE, Source
from malflow.store.redaction import shown_path
from malflow.streams.stream import StreamProvider
from malflow.words import did_you_mean, short_repr

__all__ = ["Prompt"]

_ROWS = 1000
"""The rows from which columns are guessed, as sql.md promises: some milliseconds' work."""

_QUIET = 0.2
"""Seconds without a row after which the rows so far must do: a topic has no end."""

_PATIENCE = 5.0
"""Seconds to wait for the first row of a topic: connecting takes less, and people wait."""

_STANDARD_INPUT = "-"


class Prompt:
    """What paths and URLs in quotes stand for; each is looked at once.

    Attributes:
        statements: the CREATE TABLE of each that was looked at.
    """

    def __init__(self) -> None:
        self.statements: dict[str, str] = {}
        self._input = StandardInput(sys.stdin)

    def created(self, path: str) -> str:
        """Return the CREATE TABLE of a path or URL.

        Raises:
            GraphError: if there is nothing to read there, or its columns can't be guessed.
        """
        if path not in self.statements:
            url = _with_format(path)
            self.statements[path] = create_table(path_name(path), url, self._columns(url))
        return self.statements[path]

    def connect(self, _table: str, url: str, options: Mapping[str, Any]) -> Any:
        """Return the source or sink of a table."""
        return InputSource(self._input) if url == _STANDARD_INPUT else connect(url, **options)

    def ends(self, url: str, options: Mapping[str, str]) -> bool:
        """Whether the rows of a URL end."""
        if url == _STANDARD_INPUT:
            return True
        connection = connect(url, **options)
        try:
            source = connection.source()
        except MalflowError:  # it may only be written to; who reads it gets the error
            return False
        is_paged = connection.connector.startswith("postgres") and "changes" not in connection.connector
        if is_paged and connection.option("poll_every") is None:
            return True
        return connection.option("stop") is not None or (
            bool(getattr(source, "bounded", False)) and getattr(source, "discover_every", None) is None
        )

    def _columns(self, path: str) -> list[Guess]:
        if path == _STANDARD_INPUT:
            rows = self._input.first_rows(_ROWS)
            return of_rows(rows) if self._input.header is None else of_texts(self._input.header, rows)
        url = expanded(path, NOWHERE, Source(path))
        shown = shown_path(url)
        _check_file(url, shown)
        connection = connect(url)
        if connection.connector == "kafka":
            _check_brokers(Address.parse(url).netloc)
        if connection.connector == "file+parquet":
            return of_schema(_schema(connection))
        rows = _first_rows(connection)
        if not rows:
            raise GraphError(f"'{shown}' has no rows to guess columns from; name them in CREATE TABLE")
        if connection.connector == "file+csv":
            return _of_csv(connection, rows, shown)
        odd = next((it for it in rows if not isinstance(it, Mapping)), None)
        if odd is not None:
            raise GraphError(f"a row of '{shown}' must be an object with columns; got {short_repr(odd)}")
        return of_rows(rows)


def _with_format(path: str) -> str:
    """Return the URL of a topic with its format, if it has none: JSON, as of most topics."""
    address = Address.parse(path) if path else None
    if address is None or address.scheme != "kafka" or {"format", "decode"}.intersection(address.query):
        return path
    return f"{path}{'&' if address.query else '?'}format=json"


def _check_file(url: str, shown: str) -> None:
    """Check that a path names files; a near name is suggested.

    Raises:
        GraphError: if there is no such file, or it is a folder or empty.
    """
    address = Address.parse(url)
    if address.scheme or "*" in address.path:
        return
    path = Path(address.path)
    if path.is_dir():
        endings = Counter(it.name[it.name.index(".") :] for it in path.iterdir() if "." in it.name[1:])
        likely = next((it for it, _ in endings.most_common(1)), ".jsonl")
        raise GraphError(f"'{shown}' is a folder; name its files: '{path}/*{likely}'")
    if not path.exists():
        near = [it.name for it in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, near, else_="", write=lambda it: f"'{path.parent / it}'")
        raise GraphError(f"there is no file '{shown}'{hint}")
    if not path.stat().st_size:
        raise GraphError(f"'{shown}' is empty")


def _check_brokers(servers: str) -> None:
    """Check that a broker answers; its client would try for half a minute.

    Raises:
        GraphError: if none answers.
    """
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]") or server, int(port) if host else _KAFKA), _ANSWER).close()
        except (OSError, ValueError):
            continue
        return
    raise GraphError(f"no broker answers at {servers}; is it running?")


_KAFKA = 9092
"""The usual port of a broker."""

_ANSWER = 3.0
"""Seconds in which a broker must answer: more than a connection across the world takes."""


def _schema(connection: Connection) -> Any:
    from malflow.connectors.parquet.open_file import open_parquet  # noqa: PLC0415 - an extra

    source: Any = connection.source()
    parts = [*source.list_parts()]
    if not parts:
        raise GraphError(f"{connection!r} has no files")
    file = open_parquet(parts[0], {})
    file.close()
    return file.schema


def _of_csv(connection: Connection, rows: Sequence[Any], shown: str) -> list[Guess]:
    if isinstance(rows[0], Mapping):
        names, mark = [*rows[0]], "&" if "?" in shown else "?"
        other = next((it for it in DELIMITERS if len(names) == 1 and it in names[0]), None)
        if other is not None and connection.option("delimiter") is None:
            cure = f"write '{shown}{mark}delimiter={quote(other)}'"
            raise GraphError(f"'{shown}' has one column, {names[0]!r}; {cure}")
        if has_values(names):
            cure = f"write '{shown}{mark}header=no' for columns c1, c2 and so on"
            raise GraphError(f"the first line of '{shown}' has values, not names: {', '.join(names)}; {cure}")
        return of_texts(names, [[*row.values()] for row in rows])
    width = len(rows[0])
    return of_texts([f"c{at}" for at in range(1, width + 1)], [row for row in rows if len(row) == width])


def _first_rows(connection: Connection) -> list[Any]:
    """Return the first rows of a source; those that are there if it does not end.

    Raises:
        GraphError: if it can't be read.
        KeyboardInterrupt: if the user has stopped it.
    """
    first = _First()

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("rows", connection).sink("first", first)

    try:
        SingleThreadRuntime(build, listeners=[first]).execute()
    except OperatorError as error:
        raise GraphError(f"{connection!r} can't be read: {error.__cause__ or error}") from None
    if first.was_stopped:
        raise KeyboardInterrupt
    return first.rows[:_ROWS]


class _First(StatelessSinkImpl[Any, Any, Any]):
    """Collects the first rows of a run, and stops it."""

    on_driver = True

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._run: Run | None = None
        self._stops = False
        self._last = 0.0
        self._timer: threading.Timer | None = None

    @property
    def was_stopped(self) -> bool:
        """Whether the user has stopped the run."""
        return bool(getattr(self._run, "is_stopping", False)) and not self._stops

    def sink(self, msg: Any) -> None:
        self.rows.append(msg.value)

    def on_start(self, run: Run, /) -> None:
        """Begin to wait for rows."""
        self._run = run
        self._timer = threading.Timer(_PATIENCE, self._stop)
        self._timer.daemon = True
        self._timer.start()

    def on_event(self, event: Event, /) -> None:
        """Stop the run when there are rows enough, or no more come."""
        now = time.monotonic()
        if isinstance(event, TickFinished):
            if event.polled:
                self._last = now
            if len(self.rows) >= _ROWS or (self.rows and now - self._last > _QUIET):
                self._stop()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _stop(self) -> None:
        self._stops = True
        if self._run is not None:
            self._run.stop()
