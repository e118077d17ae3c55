"""The format of a file by its name, and the file connectors of `malflow.connect`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

from malflow.connectors.address import Address
from malflow.connectors.files.csv_sink import CsvSink
from malflow.connectors.files.csv_source import CsvSource
from malflow.connectors.files.json_source import JsonLinesSource, TextFileSource
from malflow.connectors.files.sinks import JsonLinesSink, TextFileSink
from malflow.errors import GraphError

__all__ = ["csv_sink", "csv_source", "format_of", "json_sink", "json_source", "text_sink", "text_source"]

T = TypeVar("T")

_COMPRESSED: Final = frozenset({".gz", ".bz2", ".xz", ".lz4", ".zst", ".zip"})
_FORMATS: Final = {
    "jsonl": "json",
    "ndjson": "json",
    "txt": "text",
    "log": "text",
    "pq": "parquet",
}
"""The formats whose names differ from the extension."""


def format_of(path: str) -> str:
    """Return the format of a file or glob: its extension.

    Raises:
        GraphError: if it has no extension.

    >>> format_of("orders/*.jsonl.gz"), format_of("towns.csv")
    ('json', 'csv')
    """
    endings = [it for it in PurePosixPath(path).suffixes if it.lower() not in _COMPRESSED]
    if not endings:
        # The text before an '@' may be a password: the URL may lack a slash, or have one too many.
        shown = path if "@" not in path else f"***@{path.rpartition('@')[2]}"
        raise GraphError(f"file '{shown}' has no extension with a known format; pass format=, such as format=csv")
    ending = endings[-1][1:].lower()
    return _FORMATS.get(ending, ending)


def _of_path(kind: Callable[..., T]) -> Callable[..., T]:
    """Return a function that builds an object of a class with a path as its first argument; the others are options."""

    @wraps(kind)
    def make(address: Address, /, **options: Any) -> T:
        return kind(address.url, **options)

    return make


csv_source = _of_path(CsvSource)
json_source = _of_path(JsonLinesSource)
text_source = _of_path(TextFileSource)
csv_sink: Callable[..., CsvSink[Any, Any, Any]] = _of_path(CsvSink)
json_sink: Callable[..., JsonLinesSink[Any, Any, Any]] = _of_path(JsonLinesSink)
text_sink: Callable[..., TextFileSink[Any, Any, Any]] = _of_path(TextFileSink)
