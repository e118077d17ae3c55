"""A database for a test, readers that are polled to their ends, and a copy to which changes are applied strictly."""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg

from malflow.connectors.postgres import UNCHANGED, Change

PATIENCE = 30.0


@dataclass
class Database:
    dsn: str
    connection: psycopg.Connection[Any]

    def execute(self, query: str, *params: Any) -> Any:
        return self.connection.execute(query, params or None)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()


def slot_name() -> str:
    return f"s_{uuid4().hex}"


def poll_until(reader: Any, enough: Callable[[list[Any]], bool], limit: int = 1000) -> list[Any]:
    """Poll until what came is enough."""
    values: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while not enough(values):
        got, times = reader.poll_batch(limit)
        assert len(got) == len(times)
        values += got
        assert time.monotonic() < deadline, f"only {values!r}"
        if not got:
            time.sleep(0.002)
    return values


def read_all(reader: Any, limit: int = 1000) -> list[Any]:
    """Poll until the reader is finished."""
    return poll_until(reader, lambda _: reader.is_finished(), limit)


@contextmanager
def cut_off_at(words: bytes, port: int, instead: Callable[[], object] | None = None) -> Iterator[int]:
    """Return a port behind which a server is; the first connection on which a client says some words is cut off.

    Or, before the server hears them, something else is done.
    """
    is_cut = threading.Event()
    threads: list[threading.Thread] = []

    def pass_on(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", port)) as server, suppress(OSError):
            while True:
                for end in select.select([client, server], [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    if words in data and not is_cut.is_set():
                        is_cut.set()
                        if instead is None:
                            return
                        instead()
                    (server if end is client else client).sendall(data)

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=pass_on, args=(listener.accept()[0],)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, args=(listener,))
        accepting.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()
    assert is_cut.is_set()


class StrictCopy:
    """A copy of tables; a change that doesn't fit is an error: a row inserted twice, or missing."""

    def __init__(self, key: tuple[str, ...] = ("id",)) -> None:
        self.key = key
        self.tables: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}

    def apply(self, change: Change) -> None:
        table = self.tables.setdefault(change.table, {})
        if change.kind == "truncate":
            table.clear()
            return
        before = {}
        if change.kind != "insert":
            before = table.pop(self._key(change.old or change.new), None)
            assert before is not None, f"{change} of a row that is not there"
        if change.new is not None:
            key = self._key(change.new)
            assert key not in table, f"{change} of a row that is there"
            table[key] = {name: before[name] if it is UNCHANGED else it for name, it in change.new.items()}

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in self.tables.get(table, {}).values())

    def _key(self, row: Any) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)
