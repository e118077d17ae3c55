"""A transactional sink with an SQLite file, which has everything that an external system can see of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from malflow.errors import FencedError
from malflow.message import DataMessage
from malflow.sinks import SinkOwner, TransactionalSinkImpl

_TABLES = """
create table if not exists owners (name text primary key, claim integer not null, epoch integer not null);
create table if not exists rows (name text, epoch integer, at integer, value text, primary key (name, epoch, at));
create table if not exists staged (name, claim, epoch, rows, primary key (name, claim, epoch));
"""


class LedgerSink(TransactionalSinkImpl[Any, Any, Any, list[Any]]):
    """Writes the values of each transaction into a table at once, notes its number, and checks the claim.

    Args:
        path: the database.
        staged: whether transactions are prepared in the database; otherwise their rows are in the handle.
        before: called before each of the four methods with its name; may raise.
    """

    def __init__(self, path: Path, *, staged: bool = False, before: Callable[[str], None] = lambda _: None) -> None:
        self.path = path
        self.staged = staged
        self.before = before
        self.owner: SinkOwner | None = None
        self.rows: list[Any] = []
        self._known = 0
        self.calls: list[str] = []

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Collect a value."""
        self.rows.append(msg.value)

    def fence(self, owner: SinkOwner) -> int:
        """Raise the claim; return the last transaction."""
        self._pass("fence")
        self.owner, self.rows = owner, []
        self._known = owner.transaction
        with self._changing() as database:
            claim, transaction = self._ledger(database)
            self._check(claim)
            self._compare(transaction)
            database.execute("insert or replace into owners values (?, ?, ?)", (owner.name, owner.claim, transaction))
        self._known = transaction
        return transaction

    def prepare(self, transaction: int) -> list[Any] | None:
        """Return the rows, or stage them."""
        self._pass("prepare")
        rows, self.rows = self.rows, []
        if not rows:
            return None
        assert self.owner is not None
        if not self.staged:
            return [transaction, rows, 0]
        with self._changing() as database:
            staged = (self.owner.name, self.owner.claim, transaction, json.dumps(rows))
            database.execute("insert or replace into staged values (?, ?, ?, ?)", staged)
        return [transaction, None, self.owner.claim]

    def commit(self, handles: Sequence[list[Any]]) -> None:
        """Insert the rows of each transaction that is not there yet."""
        self._pass("commit")
        assert self.owner is not None
        for number, rows, claim in handles:
            self._pass("commit one")
            with self._changing() as database:
                latest, transaction = self._ledger(database)
                self._check(latest)
                self._compare(transaction)
                if number > transaction:
                    found = self._staged(database, claim, number) if rows is None else rows
                    lines = [(self.owner.name, number, at, json.dumps(row)) for at, row in enumerate(found)]
                    database.executemany("insert into rows values (?, ?, ?, ?)", lines)
                    database.execute("update owners set epoch = ? where name = ?", (number, self.owner.name))
            self._known = max(self._known, number)
        self._pass("after commit")

    def abort(self, keep: Sequence[list[Any]]) -> None:
        """Delete what is staged."""
        self._pass("abort")
        self.rows = []
        assert self.owner is not None
        kept = {(claim, transaction) for transaction, _, claim in keep}
        with self._changing() as database:
            staged = database.execute("select claim, epoch from staged where name = ?", (self.owner.name,)).fetchall()
            dead = [(self.owner.name, *it) for it in staged if it not in kept]
            database.executemany("delete from staged where name = ? and claim = ? and epoch = ?", dead)

    def _pass(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)

    def _staged(self, database: sqlite3.Connection, claim: int, transaction: int) -> list[Any]:
        assert self.owner is not None
        where = (self.owner.name, claim, transaction)
        found = database.execute("select rows from staged where name = ? and claim = ? and epoch = ?", where)
        rows: list[Any] = json.loads(found.fetchone()[0])
        return rows

    def _ledger(self, database: sqlite3.Connection) -> tuple[int, int]:
        assert self.owner is not None
        found = database.execute("select claim, epoch from owners where name = ?", (self.owner.name,)).fetchone()
        return (0, 0) if found is None else found

    def _check(self, claim: int) -> None:
        assert self.owner is not None
        if claim > self.owner.claim:
            raise FencedError(f"claim {claim} has '{self.owner.name}'; this run has {self.owner.claim}")

    def _compare(self, transaction: int) -> None:
        if transaction < self._known:
            raise RuntimeError(f"transaction {self._known} was committed; the ledger has {transaction}")

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with closing(_opened(self.path)) as database, database:
            database.execute("begin immediate")
            yield database


def rows_of(path: Path) -> list[Any]:
    """Return the values that a reader outside sees, in the order in which they were committed."""
    if not path.exists():
        return []
    with closing(_opened(path)) as database:
        found = database.execute("select value from rows order by name, epoch, at").fetchall()
    return [json.loads(value) for (value,) in found]


def transactions_of(path: Path) -> dict[int, list[Any]]:
    """Return the values that a reader outside sees, by transaction."""
    by_transaction: dict[int, list[Any]] = {}
    with closing(_opened(path)) as database:
        for transaction, value in database.execute("select epoch, value from rows order by epoch, at"):
            by_transaction.setdefault(transaction, []).append(json.loads(value))
    return by_transaction


def staged_in(path: Path) -> int:
    """Return how many transactions are staged."""
    with closing(_opened(path)) as database:
        count: int = database.execute("select count(*) from staged").fetchone()[0]
    return count


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    database.executescript(f"pragma synchronous = off; {_TABLES}")
    return database
