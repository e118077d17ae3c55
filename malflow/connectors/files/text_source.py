"""A source that reads text files by line."""

from __future__ import annotations

from malflow.connectors.files.lines import LineBuffer
from malflow.connectors.files.parser import Parsed, RecordParser
from malflow.connectors.files.partitions import FolderValues
from malflow.connectors.files.source import FileSource

__all__ = ["TextFileSource"]


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
