"""The transactions of sinks that stage files, whatever the files' format."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar, TypeAlias

from malflow.connectors.lost_output import Confirmed, OnDataLoss
from malflow.connectors.options import require_delivery, require_duration, require_mapping, require_on_data_loss
from malflow.connectors.sink_errors import SinkFileError
from malflow.connectors.staging.ledger import Ledger
from malflow.connectors.staging.opening import open_place
from malflow.connectors.staging.places import HIDDEN, Place, Staged, StagedFile
from malflow.errors import GraphError, MalflowError
from malflow.filesystem import is_local, local_path
from malflow.sinks.transactional import Delivery, SinkOwner
from malflow.store.contract import Store
from malflow.store.opening import open_store
from malflow.store.redaction import redacted, secrets_in
from malflow.store.retry import Retry, SystemContext

__all__ = ["Handle", "StagedFiles"]


Handle: TypeAlias = tuple[int, Staged]
"""A transaction, and its staged file."""


class StagedFiles(ABC):
    """The base of sinks that write one file for each transaction.

    A subclass writes to files from `_new_file`, completes the open file in `_finished` and discards it in `_drop`.

    Args:
        asked_by: the name of the sink's class, for errors.
        folder: a local folder, which is created, or a URL on an object store.
        suffix: the suffix of the files' names.
        delivery: with ``"at-least-once"``, a file becomes visible at each snapshot and at the end of the run.
        storage_options: options for the file system.
        retry_for: how long the run waits for an unreachable object store.
        on_data_loss: ``"continue"`` if the ledger may lack a committed transaction.

    Raises:
        GraphError: if an argument is not valid, or the file system does not write files as a whole.
    """

    _write_errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """The errors that writing to a file raises."""

    def __init__(
        self,
        asked_by: str,
        folder: str | os.PathLike[str],
        suffix: str,
        *,
        delivery: Delivery,
        storage_options: Mapping[str, Any] | None,
        retry_for: timedelta,
        on_data_loss: OnDataLoss,
    ) -> None:
        require_mapping(asked_by, "storage_options", storage_options, "options of the file system")
        require_delivery(asked_by, delivery)
        require_duration(asked_by, "retry_for", retry_for)
        require_on_data_loss(asked_by, on_data_loss)
        self._options = dict(storage_options or {})
        self._folder = _checked_folder(asked_by, folder)
        self.delivery = delivery
        self._asked_by = asked_by
        self._suffix = suffix
        self._retry_for = retry_for.total_seconds()
        self._shown = redacted(self._folder, secrets_in(self._options, self._folder))
        self._accepts_loss = on_data_loss == "continue"
        self._output: _Output | None = None
        self._files = 0
        open_place(self._folder, self._options, "", self._retry)  # refuses other file systems now
        if delivery == "at-least-once":
            self.snapshot, self.restore = self._end_file, self._begin_anew

    def close(self) -> None:
        """Drop records that are not prepared; if delivery is at least once, publish them."""
        if self.delivery == "at-least-once":
            self._end_file()
        self._drop()

    def fence(self, owner: SinkOwner) -> int:
        """Take over the folder; return the last transaction whose commit has begun.

        Raises:
            FencedError: if a run with a higher claim has it.
            SinkFileError: if the ledger lacks a committed transaction.
        """
        digest = blake2b(owner.name.encode(), digest_size=4).hexdigest()
        slug = re.sub(r"[^A-Za-z0-9]+", "-", owner.name)[:60].strip("-")
        sub = f"{slug}-{digest}"
        self._drop()
        self._output, self._files = None, 0
        with self._named():
            _make_folder(self._folder)
        store = open_store(f"{self._folder}/{HIDDEN}/{sub}", self._options)
        confirmed = Confirmed(f"below {HIDDEN}", self._lost, accepts_loss=self._accepts_loss)
        ledger = Ledger(store, self._shown, self._retry, confirmed)
        ledger.claim(owner)
        place = open_place(self._folder, self._options, f"{sub}/staged", self._retry)
        self._output = _Output(place, f"part-{digest}-", owner.claim, store, ledger)
        return ledger.last.begun

    def prepare(self, transaction: int) -> Handle | None:
        """Complete the file of a transaction: durable, but not visible. Return None if there were no records."""
        staged = self._finished()
        return None if staged is None else (transaction, staged)

    def commit(self, handles: Sequence[Handle]) -> None:
        """Make files visible.

        Raises:
            FencedError: if a run with a higher claim has the folder.
            SinkFileError: if a prepared file is gone, or the ledger lacks a committed transaction.
        """
        output = self._claimed()
        ledger = output.ledger
        due = [(number, staged) for number, staged in handles if ledger is not None and number > ledger.last.done]
        if due and ledger is not None:
            ledger.begin(due[-1][0])
            for _, staged in due:
                output.place.publish(staged)
            ledger.finish()

    def abort(self, keep: Sequence[Handle]) -> None:
        """Drop the open file, and all staged files except those in `keep`."""
        self._drop()
        output = self._claimed()
        if output.ledger is not None and not any(number <= output.ledger.last.begun for number, _ in keep):
            output.ledger.settle()
        output.place.sweep(output.owned, [staged for _, staged in keep])

    @abstractmethod
    def _finished(self) -> Staged | None:
        """Complete the open file; return None if there were no records."""

    @abstractmethod
    def _drop(self) -> None:
        """Drop everything that is not prepared."""

    @property
    def _store(self) -> Store | None:
        """The store of the data that all runs of the sink need; None if delivery is at least once."""
        return None if self._output is None else self._output.store

    @property
    def _retry(self) -> Retry:
        return Retry(self._retry_for, SystemContext())

    def _new_file(self) -> StagedFile:
        """Create the file of a transaction."""
        output = self._output or self._unclaimed()
        self._files += 1
        return output.place.create(f"{output.prefix}{self._files:06d}-{token_hex(4)}{self._suffix}")

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the folder in errors of the operating system, and of the library that writes."""
        try:
            yield
        except MalflowError:
            raise
        except self._write_errors as error:
            raise SinkFileError(self._shown, f"can't be written: {error}") from error

    def _end_file(self) -> None:
        """Publish the records so far, if delivery is at least once."""
        staged = self._finished()
        if staged is not None and self._output is not None:
            self._output.place.publish(staged)

    def _begin_anew(self, position: object) -> None:
        """Drop unpublished records, since the records after the snapshot are written again."""
        self._drop()

    def _lost(self, told: str) -> SinkFileError:
        return SinkFileError(self._shown, f"lacks committed records: {told}")

    def _claimed(self) -> _Output:
        if self._output is None:
            raise MalflowError(f"{self!r} was not claimed by a run; call fence() before prepare() and commit()")
        return self._output

    def _unclaimed(self) -> _Output:
        """Return the output of a sink that delivers at least once."""
        token = token_hex(4)
        _make_folder(self._folder)
        place = open_place(self._folder, self._options, f"files-{token}", self._retry)
        self._output = _Output(place, f"part-{token}-")
        return self._output

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the files that are open in this process."""
        return {**vars(self), "_output": None}

    def __repr__(self) -> str:
        return f"{self._asked_by}({self._shown!r})"


@dataclass(frozen=True, slots=True)
class _Output:
    """The place of a run's files, and the prefix of their names.

    With exactly-once delivery also the run's claim, the ledger, and its store.
    """

    place: Place
    owned: str
    claim: int | None = None
    store: Store | None = None
    ledger: Ledger | None = None

    @property
    def prefix(self) -> str:
        """The prefix of the names of the run's files."""
        return self.owned if self.claim is None else f"{self.owned}{self.claim:06d}-"


def _make_folder(folder: str) -> None:
    if is_local(folder):  # the store would create a folder that others can't read
        Path(local_path(folder)).mkdir(parents=True, exist_ok=True)


def _checked_folder(asked_by: str, folder: Any) -> str:
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise GraphError(f"{asked_by} folder must be a path or URL; got {folder!r}")
    path = os.fspath(folder)
    return local_path(path) if is_local(path) else path.rstrip("/")
