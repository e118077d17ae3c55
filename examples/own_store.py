"""Keep snapshots in a table of SQLite: the five operations of a store of your own.

`assert_store` of `malflow.testing` checks the laws that snapshots rely on; see docs/snapshots.md.
"""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import StoreError
from malflow.sinks import StdOutSink
from malflow.snapshot import FsspecBackend, snapshots
from malflow.sources import SingleIteratorSource
from malflow.store import KeyExists, KeyMissing, Transient, UnknownOutcome, require_folder, require_key


class TableStore:
    """A store in a table: names and their bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.connected(Transient) as table:
            table.execute("CREATE TABLE IF NOT EXISTS objects (key TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID")

    @contextmanager
    def connected(self, failure: type[StoreError]) -> Iterator[sqlite3.Connection]:
        """Open the table; an error of SQLite is one of the store."""
        try:
            with closing(sqlite3.connect(self.path)) as connection, connection:
                yield connection
        except sqlite3.OperationalError as error:
            raise failure(f"{self.path}: {error}") from error

    def put_new(self, key: str, data: bytes) -> None:
        """Create an object, if its name is free."""
        require_key(key)
        try:
            with self.connected(UnknownOutcome) as table:
                table.execute("INSERT INTO objects VALUES (?, ?)", (key, data))
        except sqlite3.IntegrityError:
            raise KeyExists(key) from None

    def get(self, key: str, limit: int) -> bytes:
        """Return the bytes of an object, up to one more than the limit."""
        require_key(key)
        with self.connected(Transient) as table:
            row = table.execute("SELECT data FROM objects WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyMissing(key)
        found: bytes = row[0]
        return found[: limit + 1]

    def list(self, prefix: str) -> list[str]:
        """Return the names below a folder."""
        require_folder(prefix)
        with self.connected(Transient) as table:
            rows = table.execute("SELECT key FROM objects WHERE substr(key, 1, ?) = ?", (len(prefix), prefix))
            return sorted(key for (key,) in rows)

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
        require_key(key)
        with self.connected(Transient) as table:
            table.execute("DELETE FROM objects WHERE key = ?", (key,))

    def sweep(self, prefix: str, dead: object) -> None:
        """Remove the leftovers of interrupted writes: an INSERT leaves nothing."""
        require_folder(prefix)


def build_dataflow(provider: StreamProvider) -> None:
    words = provider.new_stream().source("words", SingleIteratorSource(["once", "upon", "a", "time", "once"]))
    keyed = words.key_distribute("word", lambda msg: msg.value)
    keyed.stateful_map("count", lambda _word, _value, n: (n + 1, n + 1), default=int).sink("out", StdOutSink())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        backend = FsspecBackend(store=TableStore(Path(folder, "state.db")), job="words", codec="msgpack")
        SingleThreadRuntime(build_dataflow, persistence=backend).execute()
        print([dict(snapshot.operators)["count"] for snapshot in snapshots(backend)])


if __name__ == "__main__":
    main()
