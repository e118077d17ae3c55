"""A source that reads JSON lines."""

from __future__ import annotations

import json
from typing import Any

from malflow.connectors.files.lines import LineBuffer
from malflow.connectors.files.parser import Parsed, RecordParser
from malflow.connectors.files.source import FileSource

__all__ = ["JsonLinesSource"]

_BLANK = " \t\r"
_decode = json.JSONDecoder().decode


class JsonLinesSource(FileSource[Any]):
    r"""Emit the JSON value of each line, with its index in the file from 0 as timestamp.

    Blank lines are skipped. JSON is parsed as by the `json` module, including ``NaN`` and ``Infinity``. Everything
    else (files, keys, line ends, growing files) is as in `TextFileSource`.

    Args:
        path: a path, URL or glob, or several; each file is a part. ``.gz`` and the like are decompressed.
        encoding: the text encoding, which must be a superset of ASCII.
        on_error: how to handle a line that is not JSON: ``"raise"`` a `BadRecord`, ``"skip"`` and count it, or call
            a function with the `BadRecord` and count it.
        on_replaced: how to handle a file that, when a run resumes, no longer holds the bytes read before:
            ``"fail"``, or ``"restart"`` to read the present file from the beginning.
        storage_options: options for the file system, such as credentials.
        in_order: whether a worker reads its files one after the other, in the order of the paths and, for a glob, of
            their names. With event time, files not yet started do not hold back the epoch (watermark) then.

    Raises:
        GraphError: if an argument is invalid.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/log.jsonl", b'{"n": 1}\n\n[2]\n')
    >>> JsonLinesSource("memory://log.jsonl").build_part("memory://log.jsonl", None).poll_batch(10)
    ([{'n': 1}, [2]], range(0, 2))
    >>> fsspec.filesystem("memory").rm("/log.jsonl")
    """

    def _new_parser(self) -> RecordParser[Any]:
        return _JsonParser()


class _JsonParser(RecordParser[Any]):
    def parse(self, lines: LineBuffer, limit: int) -> tuple[list[Any], int] | None:
        taken = lines.lines[lines.next : lines.next + limit]
        try:
            return list(map(_decode, filter(None, taken))), len(taken)
        except (ValueError, RecursionError):
            return None

    def parse_one(self, lines: LineBuffer, at: int) -> Parsed:
        line = lines.lines[at]
        if not line.strip(_BLANK):
            return Parsed(at + 1, blank=True)
        try:
            return Parsed(at + 1, _decode(line))
        except json.JSONDecodeError as error:
            return Parsed(at + 1, reason=f"invalid JSON: {error.msg} at column {error.colno}")
        except (ValueError, RecursionError) as error:
            return Parsed(at + 1, reason=f"unreadable JSON: {error}")
