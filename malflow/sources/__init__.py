"""The source contracts, and the built-in sources.

File sources are imported on first use, because fsspec takes longer to import than everything else together.
"""

from typing import TYPE_CHECKING

from malflow.names import load_on_use
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
else:
    load_on_use(
        __name__,
        {
            "BadRecord": "malflow.connectors.files.parser",
            "CronSource": ".instants",
            "CsvSource": "malflow.connectors.files.csv_source",
            "FilePosition": "malflow.connectors.files.source",
            "InputFileError": "malflow.connectors.files.paths",
            "JsonLinesSource": "malflow.connectors.files.json_source",
            "LinePosition": "malflow.connectors.files.lines",
            "PeriodicSource": ".instants",
            "StartSource": ".instants",
            "TextFileSource": "malflow.connectors.files.json_source",
        },
    )

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
