"""The visibility of a copy: the snapshots under which the parts of a table were read, and the transactions they show.

An interrupted copy continues under another snapshot. A change that is streamed later may be visible in one of them and
not in the other; the key of its row decides which one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from malflow.connectors.postgres.errors import PostgresError

__all__ = ["CopyState", "Snapshot", "TableCopy"]

_XIDS = 1 << 32
"""The number of ids before they start over: the stream has only the lower 32 bits."""


class Snapshot(NamedTuple):
    """A snapshot of the server: the transactions that it shows, and its position in the server's log."""

    xmin: int
    xmax: int
    running: frozenset[int]
    lsn: int
    time: datetime

    @classmethod
    def from_text(cls, text: str, lsn: int, time: datetime) -> Snapshot:
        """Return the snapshot that ``pg_current_snapshot()`` describes."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, running.split(","))) if running else frozenset(), lsn, time)

    def shows(self, xid: int) -> bool:
        """Whether the effects of a committed transaction are visible; `xid` is its 32-bit id in the stream."""
        behind = (xid - self.xmin) % _XIDS
        if behind >= _XIDS // 2:
            return True  # before xmin
        full = self.xmin + behind
        return full < self.xmax and full not in self.running

    def plain(self) -> tuple[Any, ...]:
        """Convert to plain values, for positions."""
        return self.xmin, self.xmax, tuple(sorted(self.running)), self.lsn, self.time.isoformat()

    @classmethod
    def of_plain(cls, plain: tuple[Any, ...]) -> Snapshot:
        """Return the snapshot that `plain` described."""
        xmin, xmax, running, lsn, time = plain
        return cls(xmin, xmax, frozenset(running), lsn, datetime.fromisoformat(time))


class TableCopy:
    """The progress of a table's copy.

    Attributes:
        files: the files of the table on the server; a truncation replaces them.
        ranges: pairs of a snapshot's index and the last key read under it, in the order of keys.
        done: whether the last range reaches the end of the table.
    """

    def __init__(
        self, files: tuple[int, ...], ranges: tuple[tuple[int, tuple[Any, ...]], ...] = (), *, done: bool = False
    ):
        self.files, self.ranges, self.done = files, list(ranges), done

    @property
    def last_key(self) -> tuple[Any, ...] | None:
        """The key of the last row copied; None if there is none."""
        return self.ranges[-1][1] if self.ranges else None

    def advance(self, snapshot: int, key: tuple[Any, ...]) -> None:
        """Note that all rows up to `key` are copied, the last of them under a snapshot."""
        if self.ranges and self.ranges[-1][0] == snapshot:
            self.ranges.pop()
        self.ranges.append((snapshot, key))

    def finish(self, snapshot: int) -> None:
        """Note that a snapshot shows no further row."""
        self.done = True
        if not self.ranges or self.ranges[-1][0] != snapshot:
            self.ranges.append((snapshot, ()))

    def plain(self) -> tuple[Any, ...]:
        """Convert to plain values, for positions."""
        return self.files, tuple(self.ranges), self.done


class CopyState:
    """The progress of the copies of all tables, by name, and their snapshots."""

    def __init__(self, tables: dict[str, TableCopy], snapshots: list[Snapshot]) -> None:
        self.tables, self.snapshots = tables, snapshots

    def check(self, tables: Iterable[str]) -> None:
        """Check that all tables are in the copy.

        Raises:
            PostgresError: if one is not.
        """
        new = [table for table in tables if table not in self.tables]
        if new:
            raise PostgresError(
                f"the copy began without {', '.join(new)}: it has {', '.join(self.tables)}. Restore the tables and "
                "their names until the copy has caught up, or drop the slot and start the job without its snapshots"
            )

    @property
    def done(self) -> bool:
        """Whether all tables are copied."""
        return all(table.done for table in self.tables.values())

    @property
    def seen_until(self) -> int:
        """The position in the log after which no transaction is visible in any snapshot.

        0 if there is only one snapshot, since the stream begins at it.
        """
        return max((snapshot.lsn for snapshot in self.snapshots), default=0) if len(self.snapshots) > 1 else 0

    def plain(self) -> tuple[Any, ...]:
        """Convert to plain values, for positions."""
        tables = tuple((name, table.plain()) for name, table in self.tables.items())
        return tables, tuple(snapshot.plain() for snapshot in self.snapshots)

    @classmethod
    def of_plain(cls, plain: tuple[Any, ...]) -> CopyState:
        """Return the state that `plain` described."""
        tables, snapshots = plain
        return cls(
            {name: TableCopy(tuple(files), ranges, done=done) for name, (files, ranges, done) in tables},
            [Snapshot.of_plain(snapshot) for snapshot in snapshots],
        )
