"""The base of file sources: one part per file, exact positions, and handling of bad records."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, ClassVar, Generic, TypeVar

from malflow.connectors.files.lines import (
    LineBuffer,
    LinePosition,
    checked_encoding,
    is_undecodable,
    open_lines,
)
from malflow.connectors.files.listing import ListedFiles, OnReplaced, Watch
from malflow.connectors.files.parser import (
    IN_A_HEADER,
    IN_A_RECORD,
    IN_ANOTHER_ENCODING,
    BadRecord,
    OnError,
    Parsed,
    RecordParser,
    why_undecodable,
)
from malflow.connectors.files.partitions import FolderValues, PartitionColumns, Partitions
from malflow.connectors.files.paths import (
    InputFileError,
    Path,
    ReplacedFileError,
    is_gone,
    local_size,
)
from malflow.connectors.files.renamed import OnRenamed, Renames, is_set_aside
from malflow.connectors.files.typed import RecordTypes
from malflow.connectors.options import Handling, RejectingSource, keeps_rejected
from malflow.durations import Duration
from malflow.names import written_as
from malflow.sources.contract import Rejected, StatefulSourcePartition
from malflow.store.redaction import shown_path
from malflow.words import plural

__all__ = [
    "FileOptions",
    "FilePartition",
    "FilePosition",
    "FileSource",
]

V = TypeVar("V")

_START = LinePosition()
_AGAIN = (
    "source file '%s' is compressed: this process must decompress the %.1f GiB before its position again; if that "
    "takes too long, split the file into smaller ones"
)
_LOG = logging.getLogger("malflow")
_LONG = 1 << 30
"""The size in bytes from which reading a compressed file again takes seconds."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options for reading the files of a source. Picklable; its repr never shows credentials."""

    encoding: str
    on_error: Handling
    storage_options: Mapping[str, Any] = field(repr=False)
    on_replaced: OnReplaced = "fail"
    follows_renames: bool = False
    """Whether a file that is renamed before it is opened is left for the next start: in a watched folder."""


@written_as("malflow.FilePosition")
@dataclass(frozen=True, slots=True)
class FilePosition:
    """The read position of one file.

    Attributes:
        at: the position in the decompressed file.
        index: the number of records before it, including skipped ones; this is the timestamp of the next record.
        skipped: the number of bad records before it.
        first_bad: the line of the first bad record, from 1; None if there is none.
        header: the field names, if the file has a header.
    """

    at: LinePosition = _START
    index: int = 0
    skipped: int = 0
    first_bad: int | None = None
    header: tuple[str, ...] | None = None


class FilePartition(StatefulSourcePartition[V, int, FilePosition], Generic[V]):
    """The reader of one file. The file is open from the first poll until its end, or until `suspend`."""

    def __init__(
        self,
        path: str,
        parser: RecordParser[V],
        options: FileOptions,
        position: FilePosition,
        tally: dict[str, int],
    ) -> None:
        self._path = path
        self._parser = parser
        self._options = options
        self._tally = tally
        self._lines: LineBuffer | None = None
        self._finished = False
        self._share: tuple[int, int] | None = None
        self._rejected: list[Rejected] = []
        self._may_be_gone = position.at.ended
        self._take_place(position)

    def poll(self) -> tuple[V, int] | None:
        """Return the next record and its index."""
        while True:
            before = len(self._rejected)
            values, timestamps = self.poll_batch(1)
            if values:
                return values[0], timestamps[0]
            if len(self._rejected) == before:
                return None

    def poll_batch(self, limit: int) -> tuple[Sequence[V], Sequence[int]]:
        """Return the next records and their indices; none if the policy skipped or kept all of those read.

        Raises:
            BadRecord: if the next record cannot be read and `on_error` is ``"fail"``.
            InputFileError: if the file is missing, damaged, or replaced since it was read.
        """
        try:
            return self._next_batch(limit)
        except BaseException:
            self.suspend()
            raise

    def take_rejected(self) -> Sequence[Rejected]:
        """Return the records that could not be read since the last call."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def read_again(self, raw: str | bytes) -> V:
        """Return the value of a raw record that could not be read before.

        Raises:
            BadRecord: if it still can't be read.
            InputFileError: if it needs the header of its file, and the header is missing or damaged.
        """
        parser, options = self._parser, self._options
        if type(parser).parse_header is not RecordParser.parse_header:
            self._open()
            self.suspend()
        data = raw if isinstance(raw, bytes) else raw.encode(options.encoding)
        lines = parser.buffer(self._path, BytesIO(data), ExitStack(), options.encoding, parser.split)
        if not lines.has(0):
            raise BadRecord(self._path, 0, raw, "it is empty")
        parsed = parser.parse_one(lines, 0)
        bad = self._find_fault(lines, 0, parsed)
        if bad is None and (parsed.blank or lines.has(parsed.end)):
            bad = BadRecord(self._path, 0, raw, "it is not one record")
        if bad is not None:
            raise bad
        value: V = parsed.value
        return value

    def is_finished(self) -> bool:
        """Whether the end of the file was reached, now or earlier if it no longer exists."""
        if self._may_be_gone and not self._finished and self._lines is None:
            self._may_be_gone = False
            self._finished = is_gone(self._path, self._options.storage_options)
        return self._finished

    def share(self) -> tuple[int, int] | None:
        """Return the number of stored bytes read, and the stored size of the file; None if not known yet."""
        if self._lines is not None:
            self._share = self._lines.share
        elif self._share is None:
            size = local_size(self._path)
            self._share = None if size is None else (self._position.at.offset, size)
        if self._finished and self._share is not None:
            self._share = self._share[1], self._share[1]
        return self._share

    def snapshot(self) -> FilePosition:
        """Return the position after the last record returned."""
        if self._lines is not None:
            self._position = self._position_in(self._lines)
        return self._position

    def go_on_from(self, position: FilePosition) -> bool:
        """Read ahead to a later position in a compressed file, since it would have to be read again from the start."""
        lines = self._lines
        if self._finished:
            return position == self._position
        if lines is None or not lines.is_compressed or not self._goes_on(lines, position):
            return False
        self._parser.header = position.header or self._parser.header
        self._take_place(position)
        return True

    def _goes_on(self, lines: LineBuffer, position: FilePosition) -> bool:
        if position.index == 0:
            return self._index == 0
        try:
            return lines.go_on_to(position.at)
        except InputFileError:
            return False  # the reader built next raises the error

    def _take_place(self, position: FilePosition) -> None:
        self._position = position
        self._index = position.index
        self._skipped = self._told = self._tally[self._path] = position.skipped
        self._first_bad = position.first_bad

    def suspend(self) -> None:
        """Close the file."""
        self.snapshot()
        self._close()
        self._tell_skipped()

    def _close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def _open(self) -> LineBuffer:
        position, options, parser = self._position, self._options, self._parser
        self._lines = lines = open_lines(
            self._path, options.storage_options, options.encoding, parser.split, parser.buffer
        )
        if lines.is_compressed and position.at.offset >= _LONG:
            _LOG.warning(_AGAIN, shown_path(self._path), position.at.offset / _LONG)
        try:
            lines.seek(position.at)
        except ReplacedFileError as replaced:
            if options.on_replaced == "fail":
                raise
            return self._begin_anew(replaced)
        if position.index == 0:
            self._read_header(lines)
        parser.header = parser.header or position.header
        if position.at.open_line:
            self._finish_open_line(lines)
        return lines

    def _begin_anew(self, replaced: ReplacedFileError) -> LineBuffer:
        _LOG.warning("source file '%s' %s; reading it from the beginning", shown_path(self._path), replaced.problem)
        self._close()
        self._take_place(FilePosition())
        return self._open()

    def _read_header(self, lines: LineBuffer) -> None:
        while lines.has(lines.next):
            parsed = self._parser.parse_header(lines, lines.next)
            if parsed is None:
                return
            bad = self._find_fault(lines, lines.next, parsed, IN_A_HEADER)
            if bad is not None:
                raise bad
            lines.advance(parsed.end - lines.next)
            if not parsed.blank:
                return

    def _position_in(self, lines: LineBuffer) -> FilePosition:
        if self._index == 0:
            return FilePosition(_START._replace(ended=self._finished))
        at = lines.position._replace(ended=self._finished)
        return FilePosition(at, self._index, self._skipped, self._first_bad, self._parser.header)

    def _next_batch(self, limit: int) -> tuple[Sequence[V], Sequence[int]]:
        try:
            lines = self._lines or self._open()
        except InputFileError as error:
            if not self._options.follows_renames or not is_set_aside(error):
                raise
            self._close()
            self._finished = True
            if not self._position.at.offset:  # its new name is a new file, or follows it at the next start
                self._position = FilePosition(_START._replace(ended=True))
            return (), ()
        before = len(self._rejected)
        while lines.has(lines.next):
            lines.read_ahead(limit)
            values, timestamps = self._parse(lines, limit) or self._parse_one_by_one(lines, limit)
            if values or len(self._rejected) > before:
                if lines.is_used_up:
                    self._finish()
                return values, timestamps
        self._finish()
        return (), ()

    def _finish(self) -> None:
        self._finished = True
        self.suspend()

    def _parse(self, lines: LineBuffer, limit: int) -> tuple[Sequence[V], range] | None:
        parsed = self._parser.parse(lines, limit)
        if parsed is None or lines.suspect:
            return None
        values, taken = parsed
        lines.advance(taken)
        start = self._index
        self._index += len(values)
        if start == 0 and values and (doubt := self._parser.doubt(values[0])) is not None:
            _LOG.warning("source file '%s' %s", shown_path(self._path), doubt)
        return values, range(start, self._index)

    def _parse_one_by_one(self, lines: LineBuffer, limit: int) -> tuple[list[V], list[int]]:
        """Parse records and handle the bad ones; return the records before an error. The next call raises it."""
        values: list[V] = []
        timestamps: list[int] = []
        rejected: list[BadRecord] = []
        at, index = lines.next, self._index
        for _ in range(limit if self._parser.singly is None else min(limit, self._parser.singly)):
            if not lines.has(at):
                break
            parsed = self._parser.parse_one(lines, at)
            bad = self._find_fault(lines, at, parsed)
            if bad is not None:
                if values and self._options.on_error == "fail":
                    break
                self._reject(bad, index)
                rejected.append(bad)
            elif not parsed.blank:
                values.append(parsed.value)
                timestamps.append(index)
            index += not parsed.blank
            at = parsed.end
        lines.advance(at - lines.next)
        self._index = index
        self._count(rejected)
        return values, timestamps

    def _find_fault(self, lines: LineBuffer, at: int, parsed: Parsed, mend: str = IN_A_RECORD) -> BadRecord | None:
        text = "".join(lines.lines[at : parsed.end])
        undecodable = is_undecodable(text)
        if not undecodable and parsed.reason is None:
            return None
        line = lines.number(at)
        if undecodable:
            raw = text.encode(self._options.encoding, "surrogateescape").removesuffix(b"\n").removesuffix(b"\r")
            return BadRecord(
                self._path,
                line,
                raw,
                why_undecodable(raw, self._options.encoding),
                mend=f"{IN_ANOTHER_ENCODING}; {mend}",
            )
        record = text.removesuffix("\n").removesuffix("\r")
        return BadRecord(self._path, line, record, parsed.reason or "", mend=mend)

    def _finish_open_line(self, lines: LineBuffer) -> None:
        rest = lines.finish_open_line()
        if not rest:
            return
        reason = "the file's last line was read before it was complete; this was appended to it later"
        bad = BadRecord(self._path, self._position.at.line, rest, reason)
        self._reject(bad, max(0, self._index - 1))
        self._count([bad])

    def _reject(self, bad: BadRecord, index: int) -> None:
        on_error = self._options.on_error
        if on_error == "fail":
            raise bad
        if callable(on_error):
            on_error(bad)
        if keeps_rejected(on_error):
            place = f"{shown_path(bad.path)} line {bad.line}"
            self._rejected.append(Rejected(bad.record, index, place, type(bad).__name__, bad.reason))

    def _count(self, rejected: list[BadRecord]) -> None:
        if not rejected:
            return
        self._skipped += len(rejected)
        self._first_bad = self._first_bad or rejected[0].line
        self._tally[self._path] = self._skipped

    def _tell_skipped(self) -> None:
        if self._skipped > self._told:
            self._told = self._skipped
            first, path = self._first_bad, shown_path(self._path)
            fate = "kept as dead letters" if self._options.on_error == "dead_letter" else "skipped"
            _LOG.warning("%s: %s %s, the first in line %d", path, plural(self._skipped, "bad record"), fate, first)


class FileSource(RejectingSource, ListedFiles[V, int, FilePosition]):
    """A source that reads files line by line. Files are decompressed according to their suffix."""

    _has_columns: ClassVar[bool] = True
    _types: RecordTypes | None = None

    def __init__(  # noqa: PLR0913 - all of them a user's
        self,
        path: Path | Iterable[Path],
        *,
        encoding: str = "utf-8",
        on_error: OnError = "fail",
        on_replaced: OnReplaced = "fail",
        on_renamed: OnRenamed = "continue",
        storage_options: Mapping[str, Any] | None = None,
        in_order: bool = False,
        discover_every: Duration | None = None,
        partitions: Partitions | None = None,
    ) -> None:
        me = type(self).__name__
        handling = self.set_policy(me, on_error)
        types = None if self._types is None else self._types.kinds
        super().__init__(
            path,
            PartitionColumns(me, partitions, types, has_columns=self._has_columns),
            on_replaced=on_replaced,
            on_renamed=on_renamed,
            storage_options=storage_options,
            in_order=in_order,
            discover_every=discover_every,
        )
        self._options = FileOptions(
            checked_encoding(encoding, me),
            handling,
            self._storage_options,
            on_replaced,
            follows_renames=self.follows_renames,
        )
        self._tally: dict[str, int] = {}

    @property
    def skipped(self) -> dict[str, int]:
        """The number of bad records skipped so far in each file that was read in this process."""
        return dict(self._tally)

    def _new_watch(self) -> Watch:
        return Watch(self._storage_options)

    def _found_again(self, positions: Mapping[str, FilePosition], listed: Sequence[str]) -> dict[str, str]:
        renames = Renames(_places(positions), listed, self._storage_options)
        found = renames.found()
        if self.follows_renames and self._options.on_replaced == "fail":
            renames.check_replaced(found)  # a reader would set it aside again at each start
        return found

    def _unread(self, positions: Mapping[str, FilePosition]) -> list[str]:
        return [file for file, it in _places(positions).items() if not it.offset]

    def _continuation(self, position: FilePosition) -> str:
        return f"begins with what was read from it: reading continues after line {position.at.line}"

    def build_part(self, part: str, state: FilePosition | None) -> FilePartition[V]:
        """Return a reader of one file. It opens the file at the first poll."""
        position = FilePosition() if state is None else state
        return FilePartition(part, self._new_parser(self._partitions.of(part)), self._options, position, self._tally)

    def handle(self, handling: Handling) -> None:
        """Set how readers handle a record that they can't read."""
        self._options = replace(self._options, on_error=handling)

    def read_again(self, part: str, raw: str | bytes) -> V:
        """Return the value of a raw record of a dead letter.

        Raises:
            BadRecord: if it still can't be read.
            InputFileError: if it needs the header of its file, and the header is missing or damaged.
        """
        return self.build_part(part, None).read_again(raw)

    @abstractmethod
    def _new_parser(self, more: FolderValues) -> RecordParser[V]:
        """Return a parser for one file. Its records also have the columns of `more`."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_tally": {}}


def _places(positions: Mapping[str, FilePosition]) -> dict[str, LinePosition]:
    """Return the place in each file, without positions of other versions."""
    return {part: position.at for part, position in positions.items() if isinstance(position, FilePosition)}
