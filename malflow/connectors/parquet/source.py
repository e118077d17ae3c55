"""A source that reads Parquet files as columns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from malflow.connectors.files.listing import ListedFiles, OnReplaced
from malflow.connectors.files.partitions import PartitionColumns, Partitions
from malflow.connectors.files.paths import (
    InputFileError,
    MissingFileError,
    Path,
    ReplacedFileError,
    is_gone,
    local_size,
)
from malflow.connectors.files.renamed import OnRenamed, is_set_aside
from malflow.connectors.parquet.constant_columns import ConstantColumns
from malflow.connectors.parquet.open_file import FileVersion, Filter, OpenParquet, RowBatch, open_parquet
from malflow.connectors.parquet.renamed import RenamedWatch, renamed_files
from malflow.connectors.parquet.rows import (
    Nanoseconds,
    Row,
    RowMaker,
    RowOptions,
    Timestamp,
    UnreadableColumn,
    row_options,
)
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.records.batch import Batch, concat
from malflow.records.columnar import is_columnar
from malflow.sources.contract import StatefulSourcePartition
from malflow.store.redaction import redacted, secrets_in, shown_path
from malflow.words import short_repr

__all__ = ["ParquetPartition", "ParquetPosition", "ParquetSource"]

PlainPosition: TypeAlias = tuple[int, int, tuple[Any, ...] | None]

_LOG = logging.getLogger("malflow")


class ParquetPosition(NamedTuple):
    """The read position in one Parquet file; in snapshots, plain tuples.

    Attributes:
        row_group: the row group of the next row.
        row: the next row in it.
        file: the version of the file; None if it was never open.
    """

    row_group: int = 0
    row: int = 0
    file: FileVersion | None = None

    @classmethod
    def of(cls, plain: PlainPosition) -> ParquetPosition:
        """Return the position from its plain tuple in a snapshot."""
        row_group, row, file = plain
        return cls(row_group, row, None if file is None else FileVersion(*file))

    @property
    def is_end(self) -> bool:
        """Whether the position is after the last row."""
        return self.file is not None and self.row_group >= self.file.row_groups

    @property
    def plain(self) -> PlainPosition:
        """The position as a plain tuple."""
        return self.row_group, self.row, None if self.file is None else tuple(self.file)


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of a source. The repr never shows credentials."""

    rows: RowOptions
    condition: Any
    on_replaced: OnReplaced
    follows_renames: bool
    partitions: PartitionColumns
    storage_options: Mapping[str, Any] = field(repr=False)


class ParquetPartition(StatefulSourcePartition[Any, Any, PlainPosition]):
    """The reader of one file. The file is open from the first poll until its end, or until `suspend`."""

    def __init__(self, path: str, options: _Options, position: ParquetPosition) -> None:
        self._path = path
        self._options = options
        self._position = position
        self._file: OpenParquet | None = None
        self._batches: Iterator[RowBatch] = iter(())
        self._batch: RowBatch | None = None
        self._at = 0
        self._finished = False
        self._share: tuple[int, int] | None = None

    def poll(self) -> tuple[Any, Any] | None:
        """Return the next record."""
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the next records of a row group, at most `limit`.

        Raises:
            InputFileError: if the file is missing, damaged, or replaced since it was read, or lacks a column.
        """
        try:
            batch = self._next_batch()
            return ((), ()) if batch is None else self._take_several(batch, limit)
        except UnreadableColumn as error:
            self.suspend()
            raise InputFileError(self._path, str(error)) from error.__cause__
        except BaseException:
            self.suspend()
            raise

    def is_finished(self) -> bool:
        """Whether the end of the file was reached. Checks first whether the file has changed, if it still exists."""
        if not self._finished and self._file is None and self._position.is_end:
            self._finished = is_gone(self._path, self._options.storage_options)
        return self._finished

    def share(self) -> tuple[int, int] | None:
        """Return the bytes read, estimated from the rows read, and the size of the file; None if not known yet."""
        if self._file is not None:
            version = self._file.version
            rows = self._file.rows_before(self._position.row_group) + self._position.row
            self._share = version.size * rows // max(1, version.rows), version.size
        elif self._share is None:
            size = local_size(self._path)
            self._share = None if size is None else (0, size)
        if self._finished and self._share is not None:
            self._share = self._share[1], self._share[1]
        return self._share

    def snapshot(self) -> PlainPosition:
        """Return the position after the last record returned."""
        return self._position.plain

    def go_on_from(self, position: PlainPosition) -> bool:
        """Continue from a position that another reader of the file has reached, without opening it again."""
        reached = ParquetPosition.of(position)
        if self._file is not None and not (reached.file is not None and reached.file.is_same(self._file.version)):
            return False
        if reached != self._position:
            self._position = reached
            self._batches, self._batch, self._finished = iter(()), None, False
        return True

    def suspend(self) -> None:
        """Close the file."""
        self._batches, self._batch = iter(()), None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _take_several(self, batch: RowBatch, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the next records of this batch and, if they are columns, of the next ones of its row group."""
        taken = [Batch(None, *self._take(batch, limit))]
        limit -= len(taken[0])
        while limit > 0 and self._batch is None and is_columnar(taken[0].values):
            more = next(self._batches, None)
            if more is None:
                break
            if more.rows.num_rows:
                self._batch, self._at = more, 0
                taken.append(Batch(None, *self._take(more, limit)))
                limit -= len(taken[-1])
            else:
                self._pass(more)
        whole = concat(taken)
        return whole.values, whole.timestamps

    def _take(self, batch: RowBatch, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        start = self._at
        stop = min(start + limit, batch.rows.num_rows)
        before = self._rows_before
        numbers = batch.indices(start, stop)
        indices = (
            range(before + numbers.start, before + numbers.stop)
            if isinstance(numbers, range)
            else [before + number for number in numbers]
        )
        taken = self._maker.make(batch.rows.slice(start, stop - start), indices)
        self._at = stop
        if stop < batch.rows.num_rows:
            self._position = self._position._replace(row=batch.indices(stop, stop + 1)[0])
        else:
            self._pass(batch)
        return taken

    def _pass(self, batch: RowBatch) -> None:
        """Move the position past a batch, and to the next row group after the group's last batch."""
        self._batch, self._at = None, 0
        self._position = self._position._replace(row=batch.end)
        if self._file is not None and batch.end >= self._file.rows_in(self._position.row_group):
            self._end_group()

    def _end_group(self) -> None:
        self._batches = iter(())
        self._position = self._position._replace(row_group=self._position.row_group + 1, row=0)

    def _next_batch(self) -> RowBatch | None:
        try:
            return self._read_batch()
        except (MissingFileError, ReplacedFileError) as error:
            is_gone_now = local_size(self._path) is None
            if not self._options.follows_renames or not is_gone_now or not is_set_aside(error):
                raise
            self.suspend()
            self._finished = True
            return None

    def _read_batch(self) -> RowBatch | None:
        file = self._file or self._open()
        while self._batch is None:
            batch = next(self._batches, None)
            if batch is None:
                if not self._start_group(file):
                    self._finished = True
                    self.suspend()
                    return None
            elif batch.rows.num_rows:
                self._batch, self._at = batch, 0
            else:
                self._pass(batch)
        return self._batch

    def _start_group(self, file: OpenParquet) -> bool:
        """Begin to read the next row group that may have rows; return whether there is one."""
        while self._position.row_group < file.version.row_groups:
            group, row, _ = self._position
            if row < file.rows_in(group) and (self._groups is None or group in self._groups):
                self._rows_before = file.rows_before(group)
                self._batches = file.batches(group, self._columns, row, self._filter)
                return True
            self._end_group()
        file.check_unchanged()
        return False

    def _open(self) -> OpenParquet:
        options = self._options
        self._file = file = open_parquet(self._path, options.storage_options)
        was = self._position.file
        if was is not None and not was.is_same(file.version):
            replaced = ReplacedFileError(self._path, f"was changed since it was read: {_difference(was, file.version)}")
            if options.on_replaced == "fail":
                raise replaced
            _LOG.warning("source file '%s' %s; reading it from the beginning", shown_path(self._path), replaced.problem)
            self._position = ParquetPosition()
        self._position = self._position._replace(file=file.version)
        more = options.partitions.of(self._path)
        if fault := more.collision(file.schema.names):
            raise InputFileError(self._path, f"can't be read with partitions=: {fault}")
        self._maker = RowMaker(options.rows, file.schema, more.values)
        condition, folders = options.condition, ConstantColumns.of(more)
        self._filter = None if condition is None else Filter(condition, file.schema, self._path, folders)
        self._groups = None if condition is None else file.groups_for(condition, folders)
        filtered = () if self._filter is None else self._filter.reads
        self._columns = [*self._maker.reads, *filtered]
        file.keep_dictionaries([name for name in self._maker.reads if name not in filtered])
        if options.rows.nanoseconds == "fail":
            file.check_nanoseconds(self._columns)
        return file


class ParquetSource(ListedFiles[Any, Any, PlainPosition]):
    """Emit each row of Parquet files; by default a dict by column name, with its index in the file as timestamp.

    Each file is a part, named by its full path or URL, and read through fsspec: local paths, ``s3://`` and so on.
    Columns are read in batches of some thousand rows. Memory thus stays small whatever the size of the file. A run that
    resumes reads at most one row group again. A file that has changed since is an error.

    Args:
        path: a path, URL or glob, or several; each file is a part. A path that ends with a slash is a folder: its files
            are read, except for hidden ones (``.`` or ``_``) and subfolders.
        columns: the columns of a record, in order; all by default. Others are not read.
        filter: which rows to read: an expression such as ``pyarrow.compute.field("n") > 3``, or a list of tuples such
            as ``[("n", ">", 3)]``. Row groups without such rows, by their statistics, are not read.
        timestamp: the column that is the record's timestamp, or a function of the record's value; by default the
            index of the row in its file, from 0.
        row: the type of a record: `dict`; `tuple`; the name of a column, for its plain values; or any function or class
            that is called with the values of the columns in order, such as a named tuple or a dataclass.
        nanoseconds: the handling of times with a fraction of a microsecond, which Python can't represent: ``"fail"``,
            or ``"truncate"`` them.
        on_replaced: how to handle a file that has changed when a run resumes: ``"fail"``, or ``"restart"`` to read
            the new file from the beginning.
        on_renamed: how to handle a file that has another name when a run resumes: ``"continue"`` to read it on,
            ``"fail"``, or ``"restart"`` to read it from the beginning.
        storage_options: options for the file system, such as credentials.
        in_order: whether a worker reads its files one after the other, in the order of the paths and, for a glob, of
            their names.
        discover_every: how often to look for new files. The run then ends only when it is stopped. Files must appear as
            a whole, as with `ParquetSink`.
        partitions: columns from the names of folders, such as ``day=2024-05-01``: their types, as in
            ``{"day": date, "region": str}``, or True for all folders, as text; False silences the warning of such
            folders. A path that ends with a slash then has the files of these folders too.

    Raises:
        GraphError: if an argument is not valid.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"town": ["Ulm", "Bonn"], "people": [130_000, 336_000]}), f"{folder}/t.parquet")
    ...     ParquetSource(f"{folder}/t.parquet", row=tuple).build_part(f"{folder}/t.parquet", None).poll_batch(10)
    ([('Ulm', 130000), ('Bonn', 336000)], range(0, 2))
    """

    def __init__(
        self,
        path: Path | Iterable[Path],
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        timestamp: Timestamp = None,
        row: Row = dict,
        nanoseconds: Nanoseconds = "fail",
        on_replaced: OnReplaced = "fail",
        on_renamed: OnRenamed = "continue",
        storage_options: Mapping[str, Any] | None = None,
        in_order: bool = False,
        discover_every: Duration | None = None,
        partitions: Partitions | None = None,
    ) -> None:
        me = type(self).__name__
        super().__init__(
            path,
            PartitionColumns(me, partitions),
            on_replaced=on_replaced,
            on_renamed=on_renamed,
            storage_options=storage_options,
            in_order=in_order,
            discover_every=discover_every,
        )
        rows = row_options(me, columns, row, timestamp, nanoseconds)
        self.emits_columns = rows.stay_columns
        self._options = _Options(
            rows, _condition(filter), on_replaced, self.follows_renames, self._partitions, self._storage_options
        )

    def _new_watch(self) -> RenamedWatch:
        return RenamedWatch()

    def _found_again(self, positions: Mapping[str, PlainPosition], listed: Sequence[str]) -> dict[str, str]:
        versions = {part: version for part, version in _versions(positions).items() if version is not None}
        return renamed_files(versions, listed, self._storage_options)

    def _unread(self, positions: Mapping[str, PlainPosition]) -> list[str]:
        return [part for part, version in _versions(positions).items() if version is None]

    def _continuation(self, position: PlainPosition) -> str:
        del position
        return "is the file that was read: reading continues there"

    def build_part(self, part: str, state: PlainPosition | None) -> ParquetPartition:
        """Return a reader of one file. It opens the file at the first poll."""
        return ParquetPartition(part, self._options, ParquetPosition() if state is None else ParquetPosition.of(state))

    def reading(self, fields: frozenset[str]) -> ParquetSource:
        """Return a source that decodes only these columns, if its records are dicts that have them."""
        source = copy(self)
        source._options = replace(self._options, rows=self._options.rows.reading(fields))  # noqa: SLF001 - of this class
        return source

    def __repr__(self) -> str:
        secrets = secrets_in(self._storage_options)
        return f"ParquetSource({', '.join(repr(redacted(path, secrets)) for path in self._paths)})"


def _versions(positions: Mapping[str, PlainPosition]) -> dict[str, FileVersion | None]:
    """Return the version of each file that was read; None for a file that was never open."""
    return {part: ParquetPosition.of(it).file for part, it in positions.items()}


def _condition(given: Any) -> Any:
    if given is None or isinstance(given, pc.Expression):
        return given
    try:
        return pq.filters_to_expression(given)
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise GraphError(
            f"ParquetSource filter must be an expression, such as pyarrow.compute.field('n') > 3, or a list of "
            f"tuples, such as [('n', '>', 3)]; got {short_repr(given)} ({error})"
        ) from error


def _difference(before: FileVersion, now: FileVersion) -> str:
    for name in ("size", "row_groups", "rows"):
        if getattr(before, name) != getattr(now, name):
            what = {"size": "bytes", "row_groups": "row groups"}.get(name, name)
            return f"it had {getattr(before, name)} {what}, and has {getattr(now, name)}"
    return "it was rewritten"
