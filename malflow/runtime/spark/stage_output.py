"""The output of a tick of one stage of one worker, stored beside its changelog entry so that it can be sent again."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import lz4.frame

from malflow.runtime.spark.changelog import Changelog, StoredOutput
from malflow.runtime.spark.changelog_entry import PackedEntry
from malflow.runtime.spark.record_counts import RecordCounts
from malflow.runtime.spark.shuffle import Row

__all__ = ["OutputLog", "packed_pieces", "read_output", "read_pieces"]

_PIECE = 4 << 20
"""Bytes of output that are stored together."""

_LENGTH = 8
"""Bytes of the length before the pickled heads of a piece's rows."""

_SMALL = 64 << 10
"""Bytes of output that are stored in the changelog entry itself, which other processes may read."""


class OutputLog:
    """Stores the rows that a task sends before it sends them.

    Args:
        changelog: the changelog.
        stage, worker, tick: identify the output.

    Attributes:
        rows: the rows.
        pieces: the names of the objects in which the rows are stored, except for the last ones.
        sinks: the objects with the pieces of distributed sinks: the number of the sink, name and bytes of each.
    """

    def __init__(self, changelog: Changelog, stage: int, worker: int, tick: int) -> None:
        self.rows: list[Row] = []
        self.pieces: list[str] = []
        self.sinks: list[tuple[int, str, int]] = []
        self._changelog = changelog
        self._name = stage, worker, tick
        self._waiting: list[Row] = []
        self._bytes = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Store rows.

        Raises:
            StoreError: if they can't be written.
        """
        for row in rows:
            self.rows.append(row)
            self._waiting.append(row)
            self._bytes += len(row.blob)
            if self._bytes >= _PIECE:
                self._write()
        if self._bytes > _SMALL:
            self._write()

    def add_pieces(self, sink: int, pieces: list[Any]) -> None:
        """Store the pieces of a distributed sink. The next snapshot writes them.

        Raises:
            StoreError: if they can't be written.
        """
        data = packed_pieces(pieces)
        self.sinks.append((sink, self._changelog.write_sink_pieces(*self._name, data), len(data)))

    def end(self, entry: PackedEntry, report: Row, counts: RecordCounts) -> bool:
        """Write the changelog entry, with the report as the last row; return whether it is the first one.

        Args:
            entry: the entry.
            report: the report.
            counts: the numbers of records received and sent.

        Raises:
            StoreError: if it can't be written.
        """
        self.rows.append(report)
        stage, worker, tick = self._name
        output = StoredOutput([*self._waiting, report], self.pieces, counts, self.sinks)
        if self._changelog.write(stage, worker, entry, output):
            return True
        first = self._changelog.output(stage, worker, tick)
        if first is None or (first.pieces, first.sinks) != (
            self.pieces,
            self.sinks,
        ):  # otherwise it was this attempt, whose answer was lost
            self._changelog.discard((), (*self.pieces, *(name for _, name, _ in self.sinks)))
        return False

    def _write(self) -> None:
        """Write the waiting rows as one piece; their blobs are not copied."""
        blobs = [row.blob for row in self._waiting]
        heads = pickle.dumps([(row._replace(blob=b""), len(row.blob)) for row in self._waiting], 5)
        parts = len(heads).to_bytes(_LENGTH, "big"), heads, *blobs
        self.pieces.append(self._changelog.write_piece(*self._name, parts))
        self._waiting, self._bytes = [], 0


def read_output(changelog: Changelog, output: StoredOutput) -> Iterator[Row]:
    """Yield the rows of a stored output.

    Raises:
        RunFailed: if some are missing or damaged.
    """
    for name in output.pieces:
        yield from _rows_of(changelog.read_piece(name))
    yield from output.rows


def packed_pieces(pieces: list[Any]) -> bytes:
    """Return pieces of a distributed sink as `read_pieces` reads them."""
    data: bytes = lz4.frame.compress(pickle.dumps(pieces, 5), store_size=True)
    return data


def read_pieces(changelog: Changelog, name: str) -> list[Any]:
    """Return the pieces of a distributed sink that `OutputLog.add_pieces` stored.

    Raises:
        RunFailed: if they are missing or damaged.
    """
    pieces: list[Any] = pickle.loads(lz4.frame.decompress(changelog.read_piece(name)))  # noqa: S301 - of this run
    return pieces


def _rows_of(piece: bytes) -> Iterator[Row]:
    at = _LENGTH + int.from_bytes(piece[:_LENGTH], "big")
    for row, length in pickle.loads(piece[_LENGTH:at]):  # noqa: S301 - of this run
        yield row._replace(blob=piece[at : at + length])
        at += length
