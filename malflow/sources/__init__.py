"""Where records come from: the contracts of a source, and the built-in ones."""

from malflow.sources.contract import (
    StatefulSource,
    StatefulSourceImpl,
    StatefulSourcePartition,
    StatelessSource,
    StatelessSourceImpl,
    StatelessSourcePartition,
)
from malflow.sources.single_iterator import SingleIteratorSource

__all__ = [
    "SingleIteratorSource",
    "StatefulSource",
    "StatefulSourceImpl",
    "StatefulSourcePartition",
    "StatelessSource",
    "StatelessSourceImpl",
    "StatelessSourcePartition",
]
