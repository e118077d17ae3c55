"""A ledger beside a sink's output: the run that may commit, and the last committed transaction."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import partial

from malflow.connectors.lost_output import Confirmed
from malflow.errors import FencedError, MalflowError
from malflow.sinks.transactional import SinkOwner
from malflow.store.contract import KeyExists, KeyMissing, Store, Transient, UnknownOutcome
from malflow.store.retry import Retry

__all__ = ["Entry", "Ledger"]

_FOLDER = "ledger/"
_KEPT = 3
"""The newest entries to keep: a slow reader still finds its newest listed one. With one, it more often lists again;
with more, the folder has more objects."""

_LIMIT = 4096
"""The largest entry in bytes: a few numbers and a token take some hundred. The limit keeps a foreign object with such a
name out of memory."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a ledger.

    Attributes:
        claim: the claim of the run that wrote it.
        begun: the last transaction whose commit has begun.
        done: the last transaction whose commit is complete.
        token: a unique token by which a run recognizes its own entry.
    """

    claim: int = 0
    begun: int = 0
    done: int = 0
    token: str = ""


class Ledger:
    """A sequence of objects, each created exclusively. One of two concurrent writers thus fails.

    An entry is written before anything becomes visible. A fenced run finds its next number taken by the entry of the
    run with the higher claim; or, if that entry was deleted since, it finds higher numbers.

    Args:
        store: the store of the entries.
        target: the name of the output, for errors.
        retry: how long to retry while the store can't be reached.
        confirmed: the transactions that the ledger must have.
    """

    def __init__(self, store: Store, target: str, retry: Retry, confirmed: Confirmed) -> None:
        self._store = store
        self._target = target
        self._retry = retry
        self._confirmed = confirmed
        self._number = 0
        self.last = Entry()

    def claim(self, owner: SinkOwner) -> None:
        """Take over the output.

        Raises:
            FencedError: if a run with a higher claim has it.
            SinkFileError: if the ledger lacks a committed transaction.
        """
        claim = owner.claim
        while True:
            self._number, self.last = self._newest()
            if self.last.claim > claim:
                raise self._fenced(self.last.claim)
            self._confirmed.begin(owner, self.last.done)
            if self._written(replace(self.last, claim=claim)):
                return

    def begin(self, transaction: int) -> None:
        """Record that transactions up to this one are about to become visible.

        Raises:
            FencedError: if a run with a higher claim has the output.
            SinkFileError: if the ledger lacks a committed transaction.
        """
        self._check_last()
        self._append(replace(self.last, begun=max(self.last.begun, transaction)))

    def finish(self) -> None:
        """Record that all begun transactions are visible.

        Raises:
            FencedError: if a run with a higher claim has the output.
        """
        self._append(replace(self.last, done=self.last.begun))
        self._confirmed.note(self.last.done)

    def settle(self) -> None:
        """Record that the begun transactions are complete or dropped, unless that is recorded."""
        if self.last.done < self.last.begun:
            self.finish()

    def _check_last(self) -> None:
        """Check that this run's last entry is the newest: a folder restored from a backup has older ones, or none."""
        number, entry = self._newest()
        if (number, entry) == (self._number, self.last):
            return
        if entry.claim > self.last.claim:
            raise self._fenced(entry.claim)
        self._confirmed.check(entry.done)
        self._number, self.last = number, replace(entry, claim=self.last.claim)

    def _append(self, entry: Entry) -> None:
        if not self._written(entry):
            raise self._fenced(self._newest()[1].claim)

    def _written(self, entry: Entry) -> bool:
        """Write the next entry; return False if another writer has taken its number."""
        entry = replace(entry, token=self._retry.environment.token())
        number = self._number + 1
        data = json.dumps(asdict(entry)).encode()
        if not self._put(_key(number), data):
            return False
        numbers = self._numbers()
        if numbers[-1] != number:
            return False
        self._number, self.last = number, entry
        for old in numbers[:-_KEPT]:
            self._retry.of(partial(self._store.delete, _key(old)))
        return True

    def _put(self, key: str, data: bytes) -> bool:
        last: Exception | None = None
        for _ in self._retry.attempts():
            try:
                self._store.put_new(key, data)
            except KeyExists:
                return self._read(key) == data
            except (Transient, UnknownOutcome) as error:
                last = error
            else:
                return True
        raise last if last is not None else AssertionError("there is always a first attempt")

    def _newest(self) -> tuple[int, Entry]:
        while True:
            numbers = self._numbers()
            if not numbers:
                return 0, Entry()
            data = self._read(_key(numbers[-1]))
            if data is not None:
                return numbers[-1], self._entry(_key(numbers[-1]), data)

    def _entry(self, key: str, data: bytes) -> Entry:
        try:
            return Entry(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise MalflowError(
                f"the ledger of '{self._target}' has a damaged entry, {key} ({error}); delete it, and check that no "
                "visible file has records of the pending interval"
            ) from error

    def _read(self, key: str) -> bytes | None:
        try:
            return self._retry.of(lambda: self._store.get(key, _LIMIT))
        except KeyMissing:
            return None

    def _numbers(self) -> list[int]:
        keys = self._retry.of(lambda: self._store.list(_FOLDER))
        return sorted(int(key.removeprefix(_FOLDER).removesuffix(".json")) for key in keys)

    def _fenced(self, claim: int) -> FencedError:
        return FencedError(f"another run (claim {claim}) has taken over '{self._target}'; this one can't commit to it")


def _key(number: int) -> str:
    return f"{_FOLDER}{number:012d}.json"
