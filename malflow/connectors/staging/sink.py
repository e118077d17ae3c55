"""The transactions of sinks that stage files, whatever the files' format."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

from malflow.checks import check_flag, check_mapping, checked_seconds
from malflow.connectors.lost_output import Confirmed, OnDataLoss, SinkFileError
from malflow.connectors.options import check_delivery, check_on_data_loss
from malflow.connectors.staging.ledger import Ledger
from malflow.connectors.staging.opening import open_place
from malflow.connectors.staging.places import HIDDEN, Place, Staged, StagedFile
from malflow.durations import Duration
from malflow.errors import GraphError, MalflowError
from malflow.sinks.distributed import DistributedSinkImpl, Share, Shares, new_token
from malflow.sinks.transactional import Delivery, SinkOwner
from malflow.store.contract import Store
from malflow.store.failpoint import failpoint
from malflow.store.filesystem import is_local, local_path
from malflow.store.opening import open_store
from malflow.store.redaction import redacted, secrets_in
from malflow.store.retry import Retry, SystemContext
from malflow.type_parameters import K, T, V

__all__ = ["StagedFiles"]


_NUMBERS = re.compile(r"(\d+)-(\d+)-")
"""The claim and the transaction in the name of a file."""


class StagedFiles(DistributedSinkImpl[K, V, T]):
    """The base of sinks that write one file for each share of a transaction.

    A subclass implements `encode` and `open_writer`. That writer writes to a file from `_new_file`.

    Args:
        asked_by: the name of the sink's class, for errors.
        folder: a local folder (created if missing) or a URL on an object store.
        suffix: the suffix of the files' names.
        delivery: with ``"at-least-once"``, a file becomes visible at each snapshot and at the end of the run.
        storage_options: options for the file system.
        retry_for: how long the run waits for an unreachable object store.
        on_data_loss: ``"continue"`` if the ledger may lack a committed transaction.
        on_workers: whether workers write the files, where the runtime has tasks for it.

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
        retry_for: Duration,
        on_data_loss: OnDataLoss,
        on_workers: bool = True,
    ) -> None:
        check_flag(asked_by, "on_workers", on_workers)
        check_mapping(asked_by, "storage_options", storage_options, "options of the file system")
        check_delivery(asked_by, delivery)
        check_on_data_loss(asked_by, on_data_loss)
        self._options = dict(storage_options or {})
        self._folder = _checked_folder(asked_by, folder)
        self.delivery = delivery
        self._asked_by = asked_by
        self._suffix = suffix
        self._retry_for = checked_seconds(asked_by, "retry_for", retry_for, may_be_zero=True)
        self._shown = redacted(self._folder, secrets_in(self._options, self._folder))
        self._accepts_loss = on_data_loss == "continue"
        self.on_workers = on_workers
        self._output: _Output | None = None
        self._owner: SinkOwner | None = None
        self._writes_here = False
        open_place(self._folder, self._options, "", self._retry)  # refuses other file systems now
        if delivery == "at-least-once":
            self.snapshot, self.restore = self._end_file, self._begin_anew

    def close(self) -> None:
        """Drop records that are not prepared; if delivery is at least once, publish them."""
        if self.delivery == "at-least-once":
            self._end_file()
        super().close()

    def fence(self, owner: SinkOwner) -> int:
        """Take over the folder; return the last transaction whose commit has begun.

        Raises:
            FencedError: if a run with a higher claim has it.
            SinkFileError: if the ledger lacks a committed transaction.
        """
        super().fence(owner)
        self._output, self._owner, self._writes_here = None, owner, False
        with self._named():
            _make_folder(self._folder)
        store = self._opened_store(owner)
        confirmed = Confirmed(f"below {HIDDEN}", self._lost, accepts_loss=self._accepts_loss)
        ledger = Ledger(store, self._shown, self._retry, confirmed)
        ledger.claim(owner)
        self._output = replace(self._output_of(owner), store=store, ledger=ledger)
        return ledger.last.begun

    def commit(self, handles: Sequence[Shares]) -> None:
        """Make files visible, one after the other.

        Raises:
            FencedError: if a run with a higher claim has the folder.
            SinkFileError: if a prepared file is gone, or the ledger lacks a committed transaction.
        """
        output = self._claimed()
        ledger = output.ledger
        due = [handle for handle in handles if ledger is not None and handle[0] > ledger.last.done]
        if due and ledger is not None:
            last = due[-1][0]
            ledger.begin(last)
            for staged in _files_of(due):
                output.place.publish(staged)
                failpoint("published")
            ledger.finish()
            if not self._writes_here:  # tasks that were repeated have sealed others
                output.place.sweep(output.owned, (), output.is_obsolete(last))

    def abort(self, keep: Sequence[Shares]) -> None:
        """Drop the open file, and all staged files of this and earlier runs, except those in `keep`."""
        super().abort(keep)
        output = self._claimed()
        if output.ledger is not None and not any(number <= output.ledger.last.begun for number, _ in keep):
            output.ledger.settle()
        output.place.sweep(output.owned, _files_of(keep), output.is_obsolete(None))

    @property
    def _store(self) -> Store | None:
        """The store of the data that all runs of the sink need; None if delivery is at least once."""
        return None if self._output is None else self._output.store

    @property
    def _retry(self) -> Retry:
        return Retry(self._retry_for, SystemContext())

    def _new_file(self, share: Share) -> StagedFile:
        """Create the file of a share of a transaction."""
        output = self._output
        if output is None and self._owner is not None:
            output = self._output = self._output_of(self._owner)
            self._check_that_folder_is_shared(self._owner)
        output = output or self._unclaimed()
        self._writes_here = True
        number = f"{share.transaction:06d}" + (f"-{share.number:04d}" if share.of > 1 else "")
        return output.place.create(f"{output.prefix}{number}-{share.token}{self._suffix}")

    def _output_of(self, owner: SinkOwner) -> _Output:
        """Return the output of a run that has claimed it."""
        sub, digest = _folder_of(owner)
        place = open_place(self._folder, self._options, f"{sub}/staged", self._retry)
        return _Output(place, f"part-{digest}-", owner.claim)

    def _opened_store(self, owner: SinkOwner) -> Store:
        return open_store(f"{self._folder}/{HIDDEN}/{_folder_of(owner)[0]}", self._options)

    def _check_that_folder_is_shared(self, owner: SinkOwner) -> None:
        """Check, in a copy of the sink on a worker, that this process finds the driver's ledger.

        Raises:
            SinkFileError: if it does not: what it writes would be on another machine.
        """
        if is_local(self._folder) and not self._opened_store(owner).list("ledger/"):
            raise SinkFileError(
                self._shown,
                "is not the driver's: this process does not find the ledger in it. Workers write the files, so each "
                "machine must reach the folder; use a shared one or an object store, or pass on_workers=False",
            )

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
        prepared = self.prepare(self._next_transaction)
        if prepared is not None and self._output is not None:
            for staged in _files_of([prepared]):
                self._output.place.publish(staged)

    def _begin_anew(self, position: object) -> None:
        """Drop unpublished records, since the records after the snapshot are written again."""
        self._discard()

    def _lost(self, told: str) -> SinkFileError:
        return SinkFileError(self._shown, f"lacks committed records: {told}")

    def _claimed(self) -> _Output:
        if self._output is None:
            raise MalflowError(f"{self!r} was not claimed by a run; call fence() before prepare() and commit()")
        return self._output

    def _unclaimed(self) -> _Output:
        """Return the output of a sink that delivers at least once."""
        token = new_token()
        _make_folder(self._folder)
        place = open_place(self._folder, self._options, f"files-{token}", self._retry)
        self._output = _Output(place, f"part-{token}-")
        return self._output

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the files that are open in this process."""
        return {**super().__getstate__(), "_output": None}

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

    def is_obsolete(self, transaction: int | None) -> Callable[[str], bool]:
        """Return whether a file that is still staged is of no use, judging by its name.

        Args:
            transaction: the last committed one, if only this run's transactions up to it are to be dropped; None if
                all of this run and of earlier ones are.
        """

        def is_obsolete(name: str) -> bool:
            found = _NUMBERS.match(name.removeprefix(self.owned))
            if found is None:
                return False
            claim, number = map(int, found.groups())
            if transaction is None:
                return claim <= (self.claim or 0)
            return claim == self.claim and number <= transaction

        return is_obsolete


def _folder_of(owner: SinkOwner) -> tuple[str, str]:
    """Return the folder of a sink below `HIDDEN`, and the digest in the names of its files."""
    digest = blake2b(owner.name.encode(), digest_size=4).hexdigest()
    slug = re.sub(r"[^A-Za-z0-9]+", "-", owner.name)[:60].strip("-")
    return f"{slug}-{digest}", digest


def _files_of(handles: Sequence[Shares]) -> list[Staged]:
    """Return the staged files of transactions; the handles of earlier versions have one file, not a list."""
    files: list[Staged] = []
    for _, sealed in handles:
        files += [tuple(sealed)] if sealed and isinstance(sealed[0], str) else [tuple(it) for it in sealed]
    return files


def _make_folder(folder: str) -> None:
    if is_local(folder):  # the store would create a folder that others can't read
        Path(local_path(folder)).mkdir(parents=True, exist_ok=True)


def _checked_folder(asked_by: str, folder: Any) -> str:
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise GraphError(f"{asked_by} folder must be a path or URL; got {folder!r}")
    path = os.fspath(folder)
    return local_path(path) if is_local(path) else path.rstrip("/")
