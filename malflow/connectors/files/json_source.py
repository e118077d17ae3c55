"""Sources that read JSON lines, and lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from decimal import Decimal
from typing import Any, Self

from malflow.callables import is_struct
from malflow.connectors.files.lines import ByteBuffer, LineBuffer
from malflow.connectors.files.listing import OnReplaced
from malflow.connectors.files.parser import ColumnsParser, OnError, Parsed, RecordParser, Schema
from malflow.connectors.files.partitions import FolderValues, Partitions
from malflow.connectors.files.paths import Path
from malflow.connectors.files.renamed import OnRenamed
from malflow.connectors.files.source import FileSource
from malflow.connectors.files.typed import FieldError, RecordTypes, StructTypes, Types
from malflow.connectors.json_values import json_value, json_values
from malflow.durations import Duration
from malflow.errors import GraphError

__all__ = [
    "JsonLinesSource",
    "TextFileSource",
]

_NO_OBJECT = "not an object, to which partitions= could add a column"
_BLANK = " \t\r"
_decode_exactly = json.JSONDecoder(parse_float=Decimal).decode


class JsonLinesSource(FileSource[Any]):
    r"""Emit the JSON value of each line, with its index in the file from 0 as timestamp.

    Blank lines are skipped. JSON is parsed as by the `json` module, including ``NaN`` and ``Infinity``. Everything
    else (files, keys, line ends, growing files) is as in `TextFileSource`.

    Args:
        path: a path, URL or glob, or several; each file is a part. A path that ends with a slash is a folder: its files
            are read, except for hidden ones (``.`` or ``_``) and subfolders. ``.gz`` and the like are decompressed.
        types: the types of fields: a dict such as ``{"at": datetime}``, or a dataclass; values are converted to
            instances of it; items that it lacks are dropped. Numbers, booleans and text are checked, other types are
            converted from JSON values, and a Decimal keeps the digits of the text. A line with a value of another type
            is bad. A ``Struct`` of msgspec converts by its own rules.
        schema: a `pyarrow.Schema`: a line is then read as `malflow.connectors.codecs.JsonColumns` does, as a dict of
            the schema's fields. The records stay columns, and are parsed many at a time.
        encoding: the text encoding (a superset of ASCII).
        on_error: how to handle a line that is not JSON: ``"fail"`` with a `BadRecord`, ``"skip"`` and count it,
            ``"dead_letter"`` to keep its text, or call a function with the `BadRecord` and count it; or an `OnError`
            with one of these words.
        on_replaced: how to handle a file that, when a run resumes, no longer holds the bytes read before:
            ``"fail"``, or ``"restart"`` to read the new file from the beginning.
        on_renamed: how to handle a file that has another name when a run resumes, as after log rotation: read on
            after what was read (``"continue"``), ``"fail"``, or ``"restart"`` to read it as a new file.
        storage_options: options for the file system, such as credentials.
        in_order: whether a worker reads its files one after the other, in the order of the paths and, for a glob, of
            their names. With event time, files not yet started then do not hold back the epoch (watermark).
        discover_every: how often to look for new files. The run then ends only when it is stopped.
        partitions: columns from the names of folders, such as ``day=2024-05-01``: their types, as in
            ``{"day": date, "region": str}``, or True for all folders, as text; False silences the warning of such
            folders. A path that ends with a slash then has the files of these folders too.

    Raises:
        GraphError: if an argument is invalid.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/log.jsonl", b'{"n": 1}\n\n[2]\n')
    >>> JsonLinesSource("memory://log.jsonl").build_part("memory://log.jsonl", None).poll_batch(10)
    ([{'n': 1}, [2]], range(0, 2))
    >>> fsspec.filesystem("memory").rm("/log.jsonl")
    """

    def __init__(  # noqa: PLR0913 - all of them a user's
        self,
        path: Path | Iterable[Path],
        *,
        types: Types | None = None,
        schema: Schema | None = None,
        encoding: str = "utf-8",
        on_error: OnError = "fail",
        on_replaced: OnReplaced = "fail",
        on_renamed: OnRenamed = "continue",
        storage_options: Mapping[str, Any] | None = None,
        in_order: bool = False,
        discover_every: Duration | None = None,
        partitions: Partitions | None = None,
    ) -> None:
        self._columns = None if schema is None else _columns_of(schema, types, partitions)
        if not is_struct(types):
            self._types = None if types is None else RecordTypes("JsonLinesSource", types, of_text=False)
        elif partitions:
            raise GraphError("JsonLinesSource can't add columns of partitions= to a Struct; use a dataclass as types")
        else:
            self._types = StructTypes(types)
        self.emits_columns = schema is not None
        super().__init__(
            path,
            encoding=encoding,
            on_error=on_error,
            on_replaced=on_replaced,
            on_renamed=on_renamed,
            storage_options=storage_options,
            in_order=in_order,
            discover_every=discover_every,
            partitions=partitions,
        )

    def reading(self, fields: frozenset[str]) -> Self:
        """Return a source that converts only these fields, if it has a schema with them."""
        source = copy(self)
        source._tally = self._tally  # noqa: SLF001 - `skipped` of the user's object counts
        source._columns = None if self._columns is None else self._columns.reading(fields)  # noqa: SLF001 - of this class
        return source

    def _new_parser(self, more: FolderValues) -> RecordParser[Any]:
        return _JsonParser(self._types, more) if self._columns is None else _ColumnsParser(self._columns)


def _columns_of(schema: Any, types: Types | None, partitions: Partitions | None) -> Any:
    """Return a decoder of columns.

    Raises:
        GraphError: if other options do not go with a schema.
    """
    from malflow.columns.texts import checked_schema  # noqa: PLC0415 - as below
    from malflow.connectors.codecs import JsonColumns  # noqa: PLC0415 - only columns need Arrow

    if types is not None:
        raise GraphError("JsonLinesSource takes types= or schema=, and not both; a schema has the types of all fields")
    if partitions:
        raise GraphError("JsonLinesSource can't add columns of partitions= to those of schema=; use types=")
    return JsonColumns(checked_schema("JsonLinesSource", schema))


class _ColumnsParser(ColumnsParser):
    """Parses lines as columns.

    Args:
        columns: the decoder.
    """

    def __init__(self, columns: Any) -> None:
        super().__init__()
        self._columns = columns

    def _parsed(self, lines: ByteBuffer, most: int) -> tuple[Sequence[Any], int]:
        data, taken = lines.take(most)
        return self._columns.decode_lines(data), taken

    def parse_one(self, lines: LineBuffer, at: int) -> Parsed:
        line = lines.lines[at]
        if not line.strip(_BLANK):
            return Parsed(at + 1, blank=True)
        try:
            return Parsed(at + 1, self._columns.decode(line.encode()))
        except ValueError as error:
            return Parsed(at + 1, reason=str(error))


class _JsonParser(RecordParser[Any]):
    def __init__(self, types: RecordTypes | None, more: FolderValues) -> None:
        self._types = types
        self._more = more
        self._is_plain = types is None and not more.values

    def _record(self, line: str) -> Any:
        """Return the value of a line, with the types of its fields.

        Raises:
            FieldError: if the fields do not fit the types.
            ValueError: if the line is not JSON.
        """
        if (found := self._parsed((line,))) is not None:
            return found[0]
        return self._typed(json_value(line), line)

    def _parsed(self, texts: Sequence[str]) -> list[Any] | None:
        """Return the records of several lines; None if `_typed` must convert them.

        Raises:
            ValueError: if a line is not JSON.
        """
        return None if self._types is None or self._more.values else self._types.parsed(texts)

    def _typed(self, value: Any, line: str) -> Any:
        """Return the value of a line with the types of its fields and the columns of its folders.

        Raises:
            FieldError: if the fields do not fit the types, or there is none.
        """
        types, more = self._types, self._more.values
        if more and (fault := self._more.collision(value) if isinstance(value, dict) else _NO_OBJECT):
            raise FieldError(fault)
        if types is None:
            return {**value, **more} if more else value
        return types.record(value, _decode_exactly(line) if types.wants_exact else None, more)

    def doubt(self, first: Any) -> str | None:
        if isinstance(first, list) and first and all(isinstance(it, dict) for it in first):
            return (
                f"has an array of {len(first)} objects in a line: it is one record; call .flatten() to make each "
                "object a record, or write one a line"
            )
        return None

    def parse(self, lines: LineBuffer, limit: int) -> tuple[list[Any], int] | None:
        taken = lines.lines[lines.next : lines.next + limit]
        try:
            texts = list(filter(None, taken))
            if self._is_plain:
                return json_values(texts), len(taken)
            found = self._parsed(texts)
            return found or list(map(self._typed, json_values(texts), texts)), len(taken)
        except (ValueError, RecursionError):
            return None

    def parse_one(self, lines: LineBuffer, at: int) -> Parsed:
        line = lines.lines[at]
        if not line.strip(_BLANK):
            return Parsed(at + 1, blank=True)
        try:
            return Parsed(at + 1, self._record(line))
        except FieldError as error:
            return Parsed(at + 1, reason=str(error))
        except json.JSONDecodeError as error:
            return Parsed(at + 1, reason=f"invalid JSON: {error.msg} at column {error.colno}")
        except (ValueError, RecursionError) as error:
            return Parsed(at + 1, reason=f"unreadable JSON: {error}")


class TextFileSource(FileSource[str]):
    r"""Emit each line of text files, without its line end, with its index in the file from 0 as timestamp.

    Only ``\n`` and ``\r\n`` end a line; the last line may have no end. A byte order mark at the beginning is dropped.
    The key of a record is its file. For a local file this is the absolute path with links resolved. A run that resumes
    finds its position however the path was written.

    Files should be complete. If a file has grown when a run resumes, the new lines are read; if its last line had no
    end and was continued since, the addition is a bad record. A digest of the first 4 KiB and of the 4 KiB before the
    position detects files that were replaced, rotated or rewritten.

    A compressed file can only be read from the beginning. A run that resumes decompresses everything read before,
    including finished files: seven seconds per GB of text on a slow machine. On Spark, each process that takes over a
    reader does so once; if the reader returns to it, it continues from where it was. So n processes decompress a file n
    times in total. A process that must skip a GiB or more logs a warning.

    Args:
        path: a path, URL or glob, or several; each file is a part. A path that ends with a slash is a folder: its files
            are read, except for hidden ones (``.`` or ``_``) and subfolders. ``.gz`` and the like are decompressed.
        encoding: the text encoding (a superset of ASCII).
        on_error: how to handle a line that does not decode: ``"fail"`` with a `BadRecord`, ``"skip"`` and count it,
            ``"dead_letter"`` to keep its bytes, or call a function with the `BadRecord` and count it; or an `OnError`
            with one of these words.
        on_replaced: how to handle a file that, when a run resumes, no longer holds the bytes read before:
            ``"fail"``, or ``"restart"`` to read the new file from the beginning.
        on_renamed: how to handle a file that has another name when a run resumes, as after log rotation: read on
            after what was read (``"continue"``), ``"fail"``, or ``"restart"`` to read it as a new file.
        storage_options: options for the file system, such as credentials.
        in_order: whether a worker reads its files one after the other, in the order of the paths and, for a glob, of
            their names. With event time, files not yet started then do not hold back the epoch (watermark).
        discover_every: how often to look for new files. The run then ends only when it is stopped.
        partitions: False silences the warning of folders such as ``day=2024-05-01``; nothing else, since a line has no
            columns. The value is in the name of the file, the key of each record.

    Raises:
        GraphError: if an argument is invalid.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/poem.txt", b"so much\ndepends\n")
    >>> source = TextFileSource("memory://poem.txt")
    >>> [poem] = source.list_parts()
    >>> source.build_part(poem, None).poll_batch(10)
    (['so much', 'depends'], range(0, 2))
    >>> fsspec.filesystem("memory").rm("/poem.txt")
    """

    _has_columns = False

    def _new_parser(self, more: FolderValues) -> RecordParser[str]:
        del more
        return _TextParser()


class _TextParser(RecordParser[str]):
    def parse(self, lines: LineBuffer, limit: int) -> tuple[list[str], int]:
        values = lines.lines[lines.next : lines.next + limit]
        return values, len(values)

    def parse_one(self, lines: LineBuffer, at: int) -> Parsed:
        return Parsed(at + 1, lines.lines[at])
