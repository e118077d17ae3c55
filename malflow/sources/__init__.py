"""The source contracts, and the built-in sources.

File sources are imported on first use, because fsspec takes longer to import than everything else together.
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
    from malflow.connectors.files.csv_source import CsvSource
    from malflow.connectors.files.json_source import JsonLinesSource, TextFileSource
    from malflow.connectors.files.parser import BadRecord
    from malflow.connectors.files.paths import InputFileError
    from malflow.sources.instants import CronSource, PeriodicSource, StartSource

__all__ = [
    "BadRecord",
    "CronSource",
    "CsvSource",
    "InputFileError",
    "JsonLinesSource",
    "PeriodicSource",
    "SingleIteratorSource",
    "StartSource",
    "StatefulSource",
    "StatefulSourceImpl",
    "StatefulSourcePartition",
    "StatelessSource",
    "StatelessSourceImpl",
    "StatelessSourcePartition",
    "TextFileSource",
]

_LAZY = {
    "FilePosition": "malflow.connectors.files.source",
    "LinePosition": "malflow.connectors.files.lines",
    "CsvSource": "malflow.connectors.files.csv_source",
    "BadRecord": "malflow.connectors.files.parser",
    "JsonLinesSource": "malflow.connectors.files.json_source",
    "InputFileError": "malflow.connectors.files.paths",
    "TextFileSource": "malflow.connectors.files.json_source",
    "CronSource": "malflow.sources.instants",
    "PeriodicSource": "malflow.sources.instants",
    "StartSource": "malflow.sources.instants",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
