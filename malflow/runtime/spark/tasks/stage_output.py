"""The output and changes of one stage of one worker in a tick, stored so that they can be sent again."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import lz4.frame

from malflow.engine.worker import Worker
from malflow.errors import MalflowError
from malflow.runtime.spark.changelog.changelog import Changelog, StoredOutput
from malflow.runtime.spark.changelog.entry import ChangelogEntry, PackedEntry, pack_entry
from malflow.runtime.spark.tasks.records import RecordCounts, Row
from malflow.runtime.transport.states import not_picklable
from malflow.states.keyed import Delta, DeltaSum

__all__ = [
    "OutputLog",
    "added_up",
    "deltas_of",
    "merged",
    "packed",
    "packed_pieces",
    "read_output",
    "read_pieces",
]

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
    packed = BytesIO()
    _PiecePickler(packed, 5).dump(pieces)
    data: bytes = lz4.frame.compress(packed.getbuffer(), store_size=True)
    return data


class _PiecePickler(pickle.Pickler):
    """Pickles pieces; record batches of Arrow without the rows of the batches from which they were cut."""

    def reducer_override(self, piece: Any) -> Any:
        arrow = sys.modules.get("pyarrow")
        if arrow is None or not isinstance(piece, arrow.RecordBatch):
            return NotImplemented
        from malflow.columns.arrays import compact, from_compact  # noqa: PLC0415 - only sinks of columns need it

        return from_compact, (compact(piece),)


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


_MOSTLY = 4 / 3
"""A full entry is written if a stage has at most this many keys for each key in its full deltas."""


def deltas_of(worker: Worker, *, whole: bool) -> tuple[Mapping[str, Delta], bool, Mapping[str, Delta] | None]:
    """Return the delta of each state, whether they hold all state, and if so, the recent changes, if separate.

    If full deltas have most of the keys, all other states are returned in full as well, so earlier entries become
    obsolete.

    Args:
        worker: the worker.
        whole: whether full deltas were requested.
    """
    deltas, states = worker.states.deltas(), worker.states.live()
    if _is_whole(deltas, states):
        return deltas, True, None
    written = sum(len(delta.changed) for delta in deltas.values() if delta.whole)
    is_most = written > 0 and _MOSTLY * written >= sum(map(len, states.values()))
    if whole or is_most:
        return worker.states.deltas(whole=True), True, None if is_most else deltas
    return deltas, False, None


def _is_whole(deltas: Mapping[str, Delta], states: Collection[str]) -> bool:
    return all(name in deltas and deltas[name].whole for name in states)


def added_up(changes: Iterable[Mapping[str, Delta]]) -> dict[str, Delta]:
    """Return the deltas with the effect of several, in order, for each state."""
    sums: dict[str, DeltaSum] = {}
    for deltas in changes:
        for name, delta in deltas.items():
            sums.setdefault(name, DeltaSum()).add(delta)
    return {name: total.delta() for name, total in sums.items()}


def merged(entries: Sequence[ChangelogEntry]) -> ChangelogEntry:
    """Merge the last entries of a worker, in order, into one with the same effect, under the tick of the last one."""
    finished: dict[str, list[Any]] = {}
    for entry in entries:
        for name, parts in entry.finished.items():
            finished.setdefault(name, []).extend(parts)
    *earlier, last = entries
    deltas = added_up(entry.deltas for entry in entries)
    replaced = [tick for entry in earlier for tick in (*entry.merged, entry.tick)]
    return ChangelogEntry(last.tick, entries[0].before, deltas, finished=finished, merged=replaced)


def packed(entry: ChangelogEntry) -> PackedEntry:
    """Return an entry in its written form.

    Raises:
        OperatorError: naming a state that can't be pickled.
    """
    try:
        return pack_entry(entry)
    except MalflowError:
        raise
    except BaseException as error:  # classes of the user may raise any
        raise not_picklable(entry.deltas, error) from error
