"""A Delta table, to which the run that owns it appends each transaction once."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from malflow.connectors.delta.checks import Checks, checks_of
from malflow.connectors.delta.files import DataFileWriter, Staged, TableFolder, why_not
from malflow.connectors.delta.schemas import fitted
from malflow.connectors.lost_output import Confirmed
from malflow.errors import FencedError, MalflowError
from malflow.sinks.distributed import Share
from malflow.sinks.transactional import SinkOwner
from malflow.store.filesystem import is_local
from malflow.store.redaction import redacted, secrets_in
from malflow.store.s3 import hint_in

__all__ = ["DeltaSinkError", "Table"]

T = TypeVar("T")

_log = logging.getLogger("malflow.connectors")

_GONE = (
    "lacks '%s', which was prepared by a snapshot and is not in its log yet. If it was moved, put it back; if it was "
    "deleted, start from restore=None, or pass recovery='previous', sinks='accept_duplicates'"
)

_REFUSAL = "failed validation check"
"""What deltalake says of rows that do not meet the conditions of a table."""

_ATTEMPTS = 10
"""The most attempts to commit while others commit in between. Pauses rise to 0.9 seconds, 4.5 in all; half of it fails
sooner with busy writers, double waits some 19 seconds."""

_PAUSE = 0.1
"""The seconds to add to each further pause. Shorter pauses meet the same writer again, longer ones delay the commit."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class DeltaSinkError(MalflowError, OSError):
    """A Delta table could not be read or written.

    Attributes:
        table: the table.
        problem: the cause.
        refuses_records: whether the table refuses rows, by one of its conditions.
    """

    def __init__(self, table: str, problem: str) -> None:
        super().__init__(f"Delta table '{table}' {problem}")
        self.table = table
        self.problem = problem
        self.refuses_records = _REFUSAL in problem


class Table:
    """A table, and the run that may append to it.

    The log of the table has two transaction ids for each sink. The version of ``job/sink`` is the last transaction; the
    version of ``job/sink#claim`` is the claim of the run that owns the sink. Each commit sets both, and Delta refuses a
    commit if another one has set either of them since the table was read. So it is safe to check first and then commit:
    a transaction is never appended twice, nor by a run that has been replaced.

    Args:
        uri: the path or URL.
        storage_options: options of deltalake.
        settings: arguments of `deltalake.write_deltalake`.
        retry_seconds: how long to retry while an object store can't be reached.
        accepts_loss: whether the log of the table may lack committed transactions.
    """

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, str],
        settings: Mapping[str, Any],
        retry_seconds: float = 60,
        *,
        accepts_loss: bool = False,
    ) -> None:
        self._uri = uri
        self._options = dict(storage_options)
        if not is_local(uri):
            self._options = {**_retries(retry_seconds), **self._options}
        self._settings = dict(settings)
        self._secrets = secrets_in(self._options, uri)
        self._shown = redacted(uri, self._secrets)
        self._owner: SinkOwner | None = None
        self._confirmed = Confirmed("in its log", self._lost, accepts_loss=accepts_loss)
        self._was_missing = False
        self._folder: TableFolder | None = None

    def schema(self) -> pa.Schema | None:
        """Return the schema of the table; None if it does not exist."""
        table = self._load()
        return None if table is None else pa.schema(table.schema().to_arrow())

    def partitions(self) -> list[str]:
        """Return the columns by which the table is partitioned, or will be."""
        table = self._load()
        if table is not None:
            return list(table.metadata().partition_columns)
        given = self._settings.get("partition_by") or []
        return [given] if isinstance(given, str) else list(given)

    def checks(self, schema: pa.Schema | None) -> Checks | None:
        """Return the checks of rows with a schema; None if every row meets the conditions of the table.

        Args:
            schema: the schema; if a column of it is not nullable, its rows have no null there. None if rows may have
                null anywhere.
        """
        table = self._load()
        known = [] if schema is None else [field.name for field in schema if not field.nullable]
        return None if table is None else checks_of(table, known)

    def check(self, act: Callable[[], T]) -> T:
        """Check rows.

        Raises:
            UnfitRow: naming a row that the table would refuse.
            DeltaSinkError: if its conditions can't be computed.
        """
        try:
            return act()
        except MalflowError:
            raise
        except Exception as error:  # noqa: BLE001 - deltalake raises plain Exceptions
            failure = error
        raise self._error("checked", failure)

    def fence(self, owner: SinkOwner, schema: pa.Schema | None) -> int:
        """Take over the sink's ids; return the last committed transaction.

        Args:
            owner: the run.
            schema: the schema with which to create a missing table; None to create it with the first transaction.

        Raises:
            FencedError: if a run with a higher claim has them.
            DeltaSinkError: if the log of the table lacks a committed transaction.
        """
        self._owner, self._folder = owner, None
        last = self._attempt(lambda table: self._fence_once(owner, table, schema))
        reason = self._refusal(self._load())
        if reason is not None:
            _log.warning(
                "rows of Delta table '%s' are in the snapshots, and the process that started the run appends them: "
                "data files can't be added to the table, since %s",
                *(self._shown, reason),
            )
        return last

    def create(self, schema: pa.Schema) -> None:
        """Create the table for the run that owns it, unless another process has created it."""
        owner = self._owner
        if owner is not None:
            self._attempt(lambda table: self._fence_once(owner, table, schema) if table is None else None)

    def writer(self, share: Share) -> DataFileWriter | None:
        """Return the writer of a share's data file; None if files can't be added to the table, or it does not exist."""
        table = self._load()
        if table is None or self._owner is None or self._refusal(table) is not None:
            return None
        return self._files(self._owner).writer(share, pa.schema(table.schema().to_arrow()))

    def sweep(self, last: int, keep: Sequence[Staged]) -> None:
        """Remove the data files of transactions after the last committed one, except those in `keep`."""
        if self._owner is not None and self._load() is not None:
            self._files(self._owner).sweep(last + 1, {path for path, *_ in keep}, later=True)

    def append_sealed(self, transaction: int, rows: Sequence[pa.Table], files: Sequence[Staged]) -> None:
        """Append a transaction of rows and data files, unless the table has it.

        Raises:
            FencedError: if a run with a higher claim has the sink.
            DeltaSinkError: if a file is gone, or the log of the table lacks a committed transaction.
        """
        owner = self._owner
        if rows or owner is None:
            self.append(transaction, self.read(rows, files))
        elif files:
            self._attempt(lambda table: self._add_once(owner, table, transaction, files))
            self._confirmed.note(transaction)
        if owner is not None and files:
            self._files(owner).sweep(transaction, {path for path, *_ in files}, later=False)

    def read(self, rows: Sequence[pa.Table], files: Sequence[Staged]) -> pa.Table:
        """Return the rows of a transaction."""
        owner = self._owner
        read = [] if owner is None else [self._files(owner).read(file) for file in files]
        return pa.concat_tables([*rows, *read], promote_options="default")

    def _add_once(self, owner: SinkOwner, table: Any, transaction: int, files: Sequence[Staged]) -> None:
        """Add data files to the log; if the table can't take them any more, append their rows."""
        if table is not None and self._is_there(owner, table, transaction):
            return
        self._confirmed.check(_last_transaction(owner, table))
        folder = self._files(owner)
        gone = folder.lacks(files)
        if gone is not None:
            raise DeltaSinkError(self._shown, _GONE % gone)
        if table is None or self._refusal(table) is not None or not _has_columns(table, files):
            self._append_once(table, transaction, pa.concat_tables(map(folder.read, files), promote_options="default"))
            return
        now = int(time.time() * 1000)
        adds: list[Any] = [AddAction(path, size, {}, now, True, stats) for path, size, stats, _ in files]
        transactions = {owner.name: transaction, _claim_id(owner): owner.claim}
        table.create_write_transaction(adds, "append", table.schema(), commit_properties=_properties(transactions))

    def _refusal(self, table: Any) -> str | None:
        return why_not(table, self._settings.keys() - {"name", "description"}, self._uri, self._options)

    def _files(self, owner: SinkOwner) -> TableFolder:
        if self._folder is None:
            self._folder = TableFolder(self._uri, self._options, owner)
        return self._folder

    def append(self, transaction: int | None, data: pa.Table) -> None:
        """Append a transaction, unless the table has it; without a number, always append.

        Raises:
            FencedError: if a run with a higher claim has the sink.
            DeltaSinkError: if the log of the table lacks a committed transaction.
        """
        self._attempt(lambda table: self._append_once(table, transaction, data))
        if transaction is not None:
            self._confirmed.note(transaction)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the connection to the table's folder."""
        return {**vars(self), "_folder": None}

    def _fence_once(self, owner: SinkOwner, table: Any, schema: pa.Schema | None) -> int:
        properties = _properties({_claim_id(owner): owner.claim})
        self._confirmed.begin(owner, _last_transaction(owner, table))
        self._was_missing = table is None and schema is None
        if table is not None:
            self._check_claim(owner, table)
            if schema is not None:
                self._fitted(schema.empty_table(), table)
            table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
            return _last_transaction(owner, table)
        if schema is not None:
            creation = {name: self._settings[name] for name in _OF_CREATION if name in self._settings}
            deltalake.DeltaTable.create(
                self._uri, schema, storage_options=self._options, commit_properties=properties, **creation
            )
        return 0

    def _append_once(self, table: Any, transaction: int | None, data: pa.Table) -> None:
        owner, transactions = self._owner, {}
        if owner is not None and transaction is not None:
            if table is not None and self._is_there(owner, table, transaction):
                return
            self._confirmed.check(_last_transaction(owner, table))
            transactions = {owner.name: transaction, _claim_id(owner): owner.claim}
        settings = dict(self._settings)
        if table is not None:
            data = self._fitted(data, table)
            settings = {name: value for name, value in settings.items() if name not in _OF_CREATION}
        deltalake.write_deltalake(
            self._uri if table is None else table,
            data,
            mode="error" if table is None else "append",
            storage_options=self._options if table is None else None,
            commit_properties=_properties(transactions),
            **settings,
        )
        self._was_missing = False

    def _fitted(self, data: pa.Table, table: Any) -> pa.Table:
        grows = self._settings.get("schema_mode") == "merge"
        try:
            return fitted(data, pa.schema(table.schema().to_arrow()), grows=grows)
        except ValueError as error:
            problem = f"{error}; change the table's columns to the records', or start a new table"
        raise DeltaSinkError(self._shown, problem)

    def _is_there(self, owner: SinkOwner, table: Any, transaction: int) -> bool:
        self._check_claim(owner, table)
        done = table.transaction_version(owner.name)
        if self._was_missing and done is not None and table.transaction_version(_claim_id(owner)) != owner.claim:
            raise DeltaSinkError(
                self._shown, "was created by an earlier run of this job, which has just committed; start again"
            )
        return done is not None and done >= transaction

    def _lost(self, told: str) -> DeltaSinkError:
        return DeltaSinkError(self._shown, f"lacks committed records: {told}")

    def _check_claim(self, owner: SinkOwner, table: Any) -> None:
        claim = table.transaction_version(_claim_id(owner))
        if claim is not None and claim > owner.claim:
            raise FencedError(
                f"another run (claim {claim}) has taken over '{self._shown}'; this one can't commit to it"
            )

    def _attempt(self, act: Callable[[Any], T]) -> T:
        """Read the table and act on it; try again if another writer has committed in between."""
        for attempt in range(_ATTEMPTS):
            try:
                return act(self._load())
            except (CommitFailedError, DeltaError) as error:
                failure: Exception = error
                if not isinstance(error, CommitFailedError) and "already exists" not in str(error):
                    break
                time.sleep(_PAUSE * attempt)
            except MalflowError:
                raise
            except Exception as error:  # noqa: BLE001 - deltalake raises plain Exceptions, with a trace of Rust
                failure = error
                break
        raise self._error("written", failure)

    def _load(self) -> Any:
        try:
            return deltalake.DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, ValueError) as error:
            failure = error
        raise self._error("read", failure)

    def _error(self, done: str, failure: Exception) -> DeltaSinkError:
        """Return an error, with the remedy if S3's answer reveals it, and without Rust's backtrace and colours."""
        said, _, _ = str(failure).partition("\n   0: ")
        hint = hint_in(said)
        said = " ".join(_COLOURS.sub("", said).split()) + (f"; {hint}" if hint else "")
        return DeltaSinkError(
            self._shown, redacted(f"could not be {done}: {type(failure).__name__}: {said}", self._secrets)
        )


def _has_columns(table: Any, files: Sequence[Staged]) -> bool:
    """Whether a table has the columns of data files with their types, and others may be null."""
    stored = {field.name: field for field in pa.schema(table.schema().to_arrow())}
    for *_, types in files:
        if any(name not in stored or f"{stored[name].type}" != kind for name, kind in types.items()):
            return False
        if any(not field.nullable for name, field in stored.items() if name not in types):
            return False
    return True


_OF_CREATION = ("partition_by", "name", "description", "configuration")


def _retries(seconds: float) -> dict[str, str]:
    """Return storage options that limit retries only by time."""
    return {
        "max_retries": "1000000",
        "retry_timeout": f"{int(seconds * 1000)}ms",
        "backoff_config.max_backoff": "5s",
    }


def _last_transaction(owner: SinkOwner, table: Any) -> int:
    return 0 if table is None else int(table.transaction_version(owner.name) or 0)


def _claim_id(owner: SinkOwner) -> str:
    return f"{owner.name}#claim"


def _properties(transactions: Mapping[str, int]) -> Any:
    return deltalake.CommitProperties(
        app_transactions=[deltalake.Transaction(app_id, version) for app_id, version in transactions.items()]
    )
