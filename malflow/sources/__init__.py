"""Where records come from: the contracts of a source, and the built-in ones."""

from malflow.sources.contract import (
    StatefulSource,
    StatefulSourceImpl,
    StatefulSourcePartition,
    StatelessSource,
    StatelessSourceImpl,
    StatelessSourcePartition,
)
from malflow.sources.csv_file import CsvSource
from malflow.sources.files import BadRecord
from malflow.sources.json_lines import JsonLinesSource
from malflow.sources.paths import InputFileError
from malflow.sources.single_iterator import SingleIteratorSource
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
