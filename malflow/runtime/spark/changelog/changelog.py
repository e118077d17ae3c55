"""The changelog of a run's state in a scratch folder, from which any process can rebuild a worker.

Spark may run the task of a worker in any process, more than once, and may repeat it after a failure. So each tick of a
worker writes one entry: the changes of its state and its output, under a name made of stage, worker and tick. Names are
created exclusively: the first attempt wins, and any other one sends the stored output, so all attempts have one
outcome. A process that holds an older state reads the entries since then; one without state begins with the last full
entry.
"""

from __future__ import annotations

import hmac
import pickle
import secrets
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

import lz4.frame

from malflow.errors import RunFailed, StoreError
from malflow.runtime.spark.changelog.entry import NEVER, ChangelogEntry, PackedEntry, unpack_entry
from malflow.store.contract import KeyExists, KeyMissing, Store
from malflow.store.local import LocalStore
from malflow.store.opening import is_private, open_store
from malflow.store.redaction import redacted, secrets_in
from malflow.store.retry import Retry, SystemContext

__all__ = [
    "RUNS",
    "Changelog",
    "ScratchFolder",
    "StoredOutput",
]

RUNS = "runs/"
"""The prefix of runs' folders in a scratch folder, which may hold other files."""

_LIMIT = 1 << 40
"""A terabyte: entries are read whole, and no entry is as large."""

_RETRY_SECONDS = 10.0
"""How long a failing store is retried. Less: brief outages fail tasks; more: lost stores are noticed later."""

_DIGEST = 32
"""Bytes of the digest before a file's content: 256 bits are too many to forge."""

_LENGTH = 8
"""Bytes of the length before an entry; the output follows the entry."""

_REMOVERS = 8
"""Entries that are removed from a remote folder concurrently."""


@dataclass(frozen=True, slots=True)
class ScratchFolder:
    """The scratch folder of a run, with all that a process needs to open it.

    Attributes:
        url: a folder that all processes can reach.
        options: fsspec's options to open it.
        run: the run's id, which names its own subfolder.
        key: signs the files if others can write to the folder.
        classes: the script's classes, pickled, which the files refer to.
    """

    url: str
    options: Mapping[str, Any] = field(repr=False)
    run: str
    key: bytes = field(repr=False)
    classes: bytes = field(default=b"", repr=False)


class StoredOutput(NamedTuple):
    """The stored output of a tick. A repeated task sends it again.

    Attributes:
        rows: the last rows, stored in the entry itself.
        pieces: the names of the objects with the earlier rows.
        counts: the numbers of records received and sent: a `malflow.runtime.spark.tasks.records.RecordCounts`.
        sinks: for each object with pieces of a distributed sink, the number of the sink, the name and the bytes.
    """

    rows: Sequence[Any] = ()
    pieces: Sequence[str] = ()
    counts: Any = None
    sinks: Sequence[tuple[int, str, int]] = ()


class Changelog:
    """The changelog of one generation of workers.

    Each entry is written once, together with the output of its tick: the first attempt wins, and any other one sends
    the output that is stored.

    Args:
        place: the scratch folder.
        generation: the number of the generation; a rescale or restart begins a new one.

    Attributes:
        generation: the number of the generation.
        read_bytes: the bytes of the entries that `read` and `find` have read.
    """

    def __init__(self, place: ScratchFolder, generation: int) -> None:
        self._place = place
        self.generation = generation
        self.read_bytes = 0
        self._shown = redacted(place.url, secrets_in(place.options, place.url))
        self._is_private = is_private(place.url)
        self._key = place.key
        self._removers: ThreadPoolExecutor | None = None
        self._store: Store = open_store(place.url, place.options, durable=False)
        self._retry = Retry(_RETRY_SECONDS, SystemContext())

    def write(
        self,
        stage: int,
        worker: int,
        entry: PackedEntry,
        output: StoredOutput = StoredOutput(),  # noqa: B008 - immutable
    ) -> bool:
        """Write an entry with the output of its tick; return whether it is the first one.

        Raises:
            StoreError: if it can't be written.
        """
        head = len(entry.data).to_bytes(_LENGTH, "big")
        return self._put(self._name(stage, worker, entry.tick), head, entry.data, pickle.dumps(output, 5))

    def output(self, stage: int, worker: int, tick: int) -> StoredOutput | None:
        """Return the stored output of a tick, None if no attempt has written an entry.

        Raises:
            RunFailed: if it is damaged.
        """
        raw = self._get(self._name(stage, worker, tick))
        if raw is None:
            return None
        output: StoredOutput = pickle.loads(raw[_LENGTH + int.from_bytes(raw[:_LENGTH], "big") :])  # noqa: S301 - of this run
        return output

    def write_piece(self, stage: int, worker: int, tick: int, parts: Sequence[bytes]) -> str:
        """Write a part of a tick's output under a new name, and return the name.

        Raises:
            StoreError: if it can't be written.
        """
        name = f"{self._name(stage, worker, tick)}-{secrets.token_hex(8)}"
        self._put(name, *parts)
        return name

    def write_sink_pieces(self, stage: int, worker: int, tick: int, data: bytes) -> str:
        """Write the pieces of a distributed sink like `write_piece`, but not as part of the generation.

        Raises:
            StoreError: if they can't be written.
        """
        place = f"{self.generation}-{tick:012d}-{stage}-{worker}-{secrets.token_hex(8)}"
        name = f"{RUNS}{self._place.run}/sinks/{place}"
        self._put(name, data)
        return name

    def read_piece(self, name: str) -> bytes:
        """Return the content that `write_piece`, `write_sink_pieces` or `put` wrote, in one piece.

        Raises:
            RunFailed: if it is missing or damaged.
        """
        data = self._get(name)
        if data is None:
            raise self._missing(name)
        return data

    def read(self, stage: int, worker: int, tick: int, held: int = NEVER) -> ChangelogEntry:
        """Read an entry.

        Args:
            stage: the stage.
            worker: the worker.
            tick: the tick of the entry.
            held: the tick of the last entry that the reader has applied. If the entry directly follows that one and
                has recent changes, only these are returned.

        Raises:
            RunFailed: if the entry is missing or damaged.
            NotPicklable: if a state can't be unpickled.
        """
        entry = self.find(stage, worker, tick, held)
        if entry is None:
            raise self._missing(self._name(stage, worker, tick))
        return entry

    def find(self, stage: int, worker: int, tick: int, held: int = NEVER) -> ChangelogEntry | None:
        """Read an entry like `read`, but return None if it is missing."""
        raw = self._get(self._name(stage, worker, tick))
        if raw is None:
            return None
        end = _LENGTH + int.from_bytes(raw[:_LENGTH], "big")
        self.read_bytes += end - _LENGTH
        return unpack_entry(lz4.frame.decompress(raw[_LENGTH:end]), held)

    def since(self, stage: int, worker: int, last: int, tick: int) -> list[ChangelogEntry]:
        """Read the entries after `tick` up to `last` in order, but none before the last full one.

        Args:
            stage: the stage.
            worker: the worker.
            last: the tick of the worker's last entry.
            tick: the tick of the last entry that the reader has applied.
        """
        entries: list[ChangelogEntry] = []
        while last > tick:
            entry = self.read(stage, worker, last, tick)
            entries.append(entry)
            if entry.whole:
                break
            last = entry.before
        entries.reverse()
        return entries

    def put(self, name: str, data: bytes) -> bool:
        """Write an object of the generation, unless there is one with that name; return whether it was written.

        Raises:
            StoreError: if it can't be written.
        """
        return self._put(name, data)

    def get_all(self, names: Sequence[str]) -> list[bytes]:
        """Return the contents of objects; from a remote folder, read concurrently.

        Raises:
            RunFailed: if one is missing or damaged.
        """
        if self._is_private or len(names) == 1:
            return [self.read_piece(name) for name in names]
        with ThreadPoolExecutor(_REMOVERS, "malflow-scratch") as readers:
            return [*readers.map(self.read_piece, names)]

    def write_program(self, payload: bytes) -> None:
        """Write a program that is too large to send with each task.

        Raises:
            StoreError: if the program can't be written.
        """
        self._put(f"{self.folder}program", lz4.frame.compress(payload, store_size=True))

    def read_program(self) -> bytes:
        """Read the program that `write_program` wrote.

        Raises:
            RunFailed: if it is missing or damaged.
        """
        name = f"{self.folder}program"
        payload = self._get(name)
        if payload is None:
            raise self._missing(name)
        program: bytes = lz4.frame.decompress(payload)
        return program

    def discard(self, entries: Iterable[tuple[int, int, int]], pieces: Iterable[str] = ()) -> None:
        """Remove obsolete entries and pieces of output; in a remote folder, in the background.

        Args:
            entries: the stage, worker and tick of each entry.
            pieces: the names of the pieces.
        """
        names = [*(self._name(*entry) for entry in entries), *pieces]
        if isinstance(self._store, LocalStore):
            self._store.delete_together(names)
            return
        for name in names:
            if self._is_private:
                self._delete(name)
                continue
            if self._removers is None:
                self._removers = ThreadPoolExecutor(_REMOVERS, "malflow-scratch")
            self._removers.submit(self._delete, name)

    def close(self) -> None:
        """Cancel pending removals; the remaining entries are removed with the folder."""
        if self._removers is not None:
            self._removers.shutdown(wait=False, cancel_futures=True)

    def clear(self) -> None:
        """Remove all files of this generation, and partial files of killed processes."""
        with suppress(StoreError):
            for name in self._store.list(self.folder):
                self._store.delete(name)
            self._store.sweep(self.folder, lambda _: True)

    @property
    def folder(self) -> str:
        """The prefix of the names of this generation's objects."""
        return f"{RUNS}{self._place.run}/{self.generation}/"

    def _name(self, stage: int, worker: int, tick: int) -> str:
        return f"{self.folder}{tick:012d}-{stage}-{worker}"

    def _delete(self, name: str) -> None:
        with suppress(StoreError):  # it is removed with the folder
            self._store.delete(name)

    def _put(self, name: str, *parts: bytes) -> bool:
        data = b"".join((self._digest(name, *parts), *parts))
        try:
            self._retry.of(lambda: self._store.put_new(name, data))
        except KeyExists:
            return False
        return True

    def _get(self, name: str) -> bytes | None:
        try:
            data = self._retry.of(lambda: self._store.get(name, _LIMIT))
        except KeyMissing:
            return None
        except StoreError as error:
            raise RunFailed(f"'{name}' can't be read from the scratch folder: {error}") from error
        digest, body = data[:_DIGEST], data[_DIGEST:]
        if not hmac.compare_digest(digest, self._digest(name, body)):
            raise RunFailed(
                f"'{name}' in the scratch folder {self._shown} is damaged: its content is not what this run wrote"
            )
        return body

    def _missing(self, name: str) -> RunFailed:
        return RunFailed(f"'{name}' is missing from the scratch folder {self._shown}; every process must reach it")

    def _digest(self, name: str, *parts: bytes) -> bytes:
        """Return a digest that detects damage; it is signed if others can write to the folder."""
        if self._is_private:
            return reduce(lambda crc, part: crc32(part, crc), parts, crc32(name.encode())).to_bytes(_DIGEST, "big")
        digest = blake2b(name.encode(), key=self._key, digest_size=_DIGEST)
        for part in parts:
            digest.update(part)
        return digest.digest()
