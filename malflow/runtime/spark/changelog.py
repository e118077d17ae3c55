"""Where the changes of a tick lie until the next one: whatever process takes a worker next brings it up to date."""

from __future__ import annotations

import hmac
import pickle
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import lz4.frame

from malflow.errors import RunFailed, StoreError
from malflow.runtime.spark.transfer import load_states
from malflow.state import Delta
from malflow.store.contract import KeyExists, KeyMissing, Store
from malflow.store.opening import is_private, open_store
from malflow.store.redaction import redacted, secrets_in
from malflow.store.retry import Environment, Retry

__all__ = ["NEVER", "RUNS", "ChangelogEntry", "Scratch", "ScratchPlace"]

NEVER = -1
"""The tick of a worker that has never changed anything."""

RUNS = "runs/"
"""Where the folders of runs are in a scratch folder, which may hold other things."""

_LIMIT = 1 << 40
_RETRY_SECONDS = 10.0
_DIGEST = 32
_REMOVERS = 8
"""Changes that are removed from a folder far away at the same time."""


@dataclass(frozen=True, slots=True)
class ScratchPlace:
    """Where scratch files are, as every process needs to know it.

    Attributes:
        url: a folder that all processes reach.
        options: what fsspec needs to open it.
        run: tells this run's files from those of all others.
        key: signs the files, where others could write.
        classes: those of the script, pickled, which the files name.
    """

    url: str
    options: Mapping[str, Any] = field(repr=False)
    run: str
    key: bytes = field(repr=False)
    classes: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ChangelogEntry:
    """What one stage of one worker changed in a tick.

    Attributes:
        tick: the tick.
        before: the tick of the change before it, `NEVER` if there is none.
        deltas: what changed in each state.
        polls: how many records each part of each source gave, poll by poll.
        taken: how many records came, by channel and sender.
        whole: whether it has a whole delta of each state there is, so that nothing from before counts any more. A state
            that did not change has no delta: what the deltas say of themselves does not tell it.
        recent: of a whole change that was asked for, what changed since the one before: a worker that stands there
            needs no more.
    """

    tick: int
    before: int
    deltas: Mapping[str, Delta]
    polls: Sequence[Mapping[str, Mapping[Any, int]]] = ()
    taken: Mapping[tuple[int, int], int] = field(default_factory=dict)
    whole: bool = False
    recent: Mapping[str, Delta] | None = None


class Scratch:
    """The changes of one generation of workers.

    Each is written once: the first that is there counts. A tick that is done again comes to the same changes.

    Args:
        place: where.
        generation: which generation: another one begins when the number of workers changes, or the run starts again.

    Attributes:
        generation: which one.
    """

    def __init__(self, place: ScratchPlace, generation: int) -> None:
        self._place = place
        self.generation = generation
        self._shown = redacted(place.url, secrets_in(place.options, place.url))
        self._is_private = is_private(place.url)
        self._key = b"" if self._is_private else place.key
        self._removers: ThreadPoolExecutor | None = None
        self._store: Store = open_store(place.url, place.options, durable=False)
        self._retry = Retry(_RETRY_SECONDS, Environment())

    def write(self, stage: int, worker: int, change: ChangelogEntry) -> int | None:
        """Write a change; give its size, or None where it is there already.

        Raises:
            StoreError: if it can't be written.
            Exception: if a state can't be pickled.
        """
        if change.recent is None:
            return self._put(self._name(stage, worker, change.tick), pickle.dumps(change, 5))
        head = _Head(replace(change, deltas={}), pickle.dumps(change.deltas, 5))
        return self._put(self._name(stage, worker, change.tick), pickle.dumps(head, 5))

    def read(self, stage: int, worker: int, tick: int, held: int = NEVER) -> ChangelogEntry:
        """Read a change.

        Args:
            stage: the stage.
            worker: the worker.
            tick: its tick.
            held: the tick of the last change that whoever reads it has; where a whole change came right after that
                one, and has what is recent, the change that is returned has only this.

        Raises:
            RunFailed: if it is not there, or not what was written.
            CannotTravel: if a state can't be read again.
        """
        change = self.find(stage, worker, tick, held)
        if change is None:
            raise self._missing(self._name(stage, worker, tick))
        return change

    def find(self, stage: int, worker: int, tick: int, held: int = NEVER) -> ChangelogEntry | None:
        """Read a change, if it is there."""
        raw = self._get(self._name(stage, worker, tick))
        return None if raw is None else _loaded(raw, held)

    def size(self, stage: int, worker: int, tick: int) -> int:
        """Tell the size of a change that is there."""
        return len(self._retry.of(lambda: self._store.get(self._name(stage, worker, tick), _LIMIT)))

    def since(self, stage: int, worker: int, last: int, tick: int) -> list[ChangelogEntry]:
        """Read the changes after a tick, up to the last one; from the last whole one on, where that is needed.

        Args:
            stage: the stage.
            worker: the worker.
            last: the tick of its last change.
            tick: the tick of the change after which to begin.
        """
        changes: list[ChangelogEntry] = []
        while last > tick:
            change = self.read(stage, worker, last, tick)
            changes.append(change)
            if change.whole:
                break
            last = change.before
        changes.reverse()
        return changes

    def write_program(self, payload: bytes) -> None:
        """Write a program that is too large to be sent with each task.

        Raises:
            StoreError: if it can't be written.
        """
        self._put(f"{self._folder()}program", payload)

    def read_program(self) -> bytes:
        """Read what `write_program` wrote.

        Raises:
            RunFailed: if it is not there, or not what was written.
        """
        name = f"{self._folder()}program"
        payload = self._get(name)
        if payload is None:
            raise self._missing(name)
        return payload

    def discard(self, changes: Iterable[tuple[int, int, int]]) -> None:
        """Remove changes that nobody needs any more: stage, worker, tick. A folder far away is not waited for."""
        for change in changes:
            name = self._name(*change)
            if self._is_private:
                self._delete(name)
                continue
            if self._removers is None:
                self._removers = ThreadPoolExecutor(_REMOVERS, "malflow-scratch")
            self._removers.submit(self._delete, name)

    def close(self) -> None:
        """Remove no more; what is left goes with the folder."""
        if self._removers is not None:
            self._removers.shutdown(wait=False, cancel_futures=True)

    def clear(self) -> None:
        """Remove everything of this generation, and what processes that were killed have left half done."""
        with suppress(StoreError):
            for name in self._store.list(self._folder()):
                self._store.delete(name)
            self._store.sweep(self._folder(), lambda _: True)

    def _folder(self) -> str:
        return f"{RUNS}{self._place.run}/{self.generation}/"

    def _name(self, stage: int, worker: int, tick: int) -> str:
        return f"{self._folder()}{tick:012d}-{stage}-{worker}"

    def _delete(self, name: str) -> None:
        with suppress(StoreError):  # it goes with the folder
            self._store.delete(name)

    def _put(self, name: str, raw: bytes) -> int | None:
        body: bytes = lz4.frame.compress(raw, store_size=True)
        data = self._mac(name, body) + body
        try:
            self._retry.of(lambda: self._store.put_new(name, data))
        except KeyExists:
            return None
        return len(data)

    def _get(self, name: str) -> bytes | None:
        try:
            data = self._retry.of(lambda: self._store.get(name, _LIMIT))
        except KeyMissing:
            return None
        except StoreError as error:
            raise RunFailed(f"'{name}' can't be read from the scratch folder: {error}") from error
        mac, body = data[:_DIGEST], data[_DIGEST:]
        if not hmac.compare_digest(mac, self._mac(name, body)):
            raise RunFailed(f"'{name}' in the scratch folder {self._shown} is not what this run wrote: it is damaged")
        raw: bytes = lz4.frame.decompress(body)
        return raw

    def _missing(self, name: str) -> RunFailed:
        return RunFailed(f"'{name}' is missing from the scratch folder {self._shown}; every process must reach it")

    def _mac(self, name: str, body: bytes) -> bytes:
        digest = blake2b(name.encode(), key=self._key, digest_size=_DIGEST)
        digest.update(body)
        return digest.digest()


@dataclass(frozen=True, slots=True)
class _Head:
    """How a whole change is written that has what is recent, too: all the rest of it is read only where it is needed.

    Attributes:
        change: the change without its deltas.
        deltas: these, pickled.
    """

    change: ChangelogEntry
    deltas: bytes


def _loaded(raw: bytes, held: int) -> ChangelogEntry:
    read: ChangelogEntry | _Head = load_states(raw, _states)
    if isinstance(read, ChangelogEntry):
        return read
    change = read.change
    if change.before == held != NEVER:
        return replace(change, deltas=change.recent or {}, whole=False, recent=None)
    return replace(change, deltas=load_states(read.deltas, _changed), recent=None)


def _states(read: ChangelogEntry | _Head | None) -> dict[str, Mapping[Any, Any]]:
    if read is None:
        return {}
    return _changed(read.deltas if isinstance(read, ChangelogEntry) else read.change.recent)


def _changed(deltas: Mapping[str, Delta] | None) -> dict[str, Mapping[Any, Any]]:
    return {name: delta.changed for name, delta in (deltas or {}).items()}
