"""Where records come from: the contracts of a source, and the built-in ones.

What reads or writes files is imported when it is first asked for, because fsspec takes longer to import than
all the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from malflow.sources.contract import (
    StatefulSource,
    StatefulSourceImpl,
    StatefulSourcePartition,
    StatelessSource,
    StatelessSourceImpl,
    StatelessSourcePartition,
)
from malflow.sources.single_iterator import SingleIteratorSource

if TYPE_CHECKING:
    from malflow.sources.csv_file import CsvSource
    from malflow.sources.files import BadRecord
    from malflow.sources.json_lines import JsonLinesSource
    from malflow.sources.paths import InputFileError
    from malflow.sources.text_file import TextFileSource

__all__ = [
    "BadRecord",
    "CsvSource",
    "InputFileError",
    "JsonLinesSource",
    "SingleIteratorSource",
    "StatefulSource",
    "StatefulSourceImpl",
    "StatefulSourcePartition",
    "StatelessSource",
    "StatelessSourceImpl",
    "StatelessSourcePartition",
    "TextFileSource",
]

_LAZY = {
    "CsvSource": "malflow.sources.csv_file",
    "BadRecord": "malflow.sources.files",
    "JsonLinesSource": "malflow.sources.json_lines",
    "InputFileError": "malflow.sources.paths",
    "TextFileSource": "malflow.sources.text_file",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
