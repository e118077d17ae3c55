"""A source that reads text files by line."""

from __future__ import annotations

from malflow.connectors.files.lines import LineBuffer
from malflow.connectors.files.source import FileSource, Parsed, RecordParser

__all__ = ["TextFileSource"]


class TextFileSource(FileSource[str]):
    r"""Emit each line of text files, without its line end, with its index in the file from 0 as timestamp.

    A line ends with ``\n`` or ``\r\n`` and with nothing else; the last one may have no end. A byte order mark
    at the beginning is dropped. The key of a record is its file: of a local one the absolute path, links
    resolved, however it was spelt, so that a run that resumes finds how far it was read.

    A source reads files that are whole. One that has grown when a run resumes is read on; if its last line
    had no end and has been continued since, what was added to that line is a bad record. One that was
    replaced, rotated or rewritten is told by a digest of its first 4 KiB and of the 4 KiB before the position.

    A compressed file can't be entered but at its beginning: a run that resumes decompresses what it has read
    before, ended files too: seven seconds for each GB of text, on a slow machine. On Spark each process that
    takes a reader over does so once, and when it takes it over again it reads on from where it was: n
    processes decompress a file n times in all. Where a process has to pass by a GiB or more it says so.

    Args:
        path: a path, URL or glob, or several; a part per file. ``.gz`` and the like are decompressed.
        encoding: how the text is encoded; any that has ASCII in it.
        on_error: what to do with a line whose bytes do not decode: ``"raise"`` a `BadRecord`, ``"skip"``
            and count it, or a function that is given the `BadRecord`, and it is counted.
        on_replaced: what to do when a run resumes and what was read of a file is not in it any more: ``"fail"``, or
            ``"restart"`` to read the file that is there now from its beginning.
        storage_options: options for the file system, such as credentials.
        in_order: whether a worker reads its files one after the other, in the order of the paths and, of those that
            match a glob, of their names. With event time, files that were not begun hold no epoch back then.

    Raises:
        GraphError: if an argument is not one of these.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/poem.txt", b"so much\ndepends\n")
    >>> source = TextFileSource("memory://poem.txt")
    >>> [poem] = source.list_parts()
    >>> source.build_part(poem, None).poll_batch(10)
    (['so much', 'depends'], range(0, 2))
    >>> fsspec.filesystem("memory").rm("/poem.txt")
    """

    def _new_parser(self) -> RecordParser[str]:
        return _TextParser()


class _TextParser(RecordParser[str]):
    def parse(self, lines: LineBuffer, limit: int) -> tuple[list[str], int]:
        values = lines.lines[lines.next : lines.next + limit]
        return values, len(values)

    def parse_one(self, lines: LineBuffer, at: int) -> Parsed:
        return Parsed(at + 1, lines.lines[at])
