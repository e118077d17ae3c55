"""The sink contracts, and the built-in sinks.

The sinks are imported on first use. Those of files need fsspec, which takes longer to import than everything else
together.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from malflow.sinks.contract import (
    ResumableSinkImpl,
    StatefulSink,
    StatefulSinkImpl,
    StatefulSinkPartition,
    StatelessSink,
    StatelessSinkImpl,
)
from malflow.sinks.distributed import DistributedSinkImpl, Share, ShareWriter
from malflow.sinks.transactional import Divided, Refused, SinkOwner, TransactionalSinkImpl

if TYPE_CHECKING:
    from malflow.connectors.files.csv_sink import CsvSink
    from malflow.connectors.files.sinks import JsonLinesSink, TextFileSink, UnwritableValue
    from malflow.sinks.stdout import StdOutSink
    from malflow.sinks.vec import VecSink

__all__ = [
    "CsvSink",
    "DistributedSinkImpl",
    "Divided",
    "JsonLinesSink",
    "Refused",
    "ResumableSinkImpl",
    "Share",
    "ShareWriter",
    "SinkOwner",
    "StatefulSink",
    "StatefulSinkImpl",
    "StatefulSinkPartition",
    "StatelessSink",
    "StatelessSinkImpl",
    "StdOutSink",
    "TextFileSink",
    "TransactionalSinkImpl",
    "UnwritableValue",
    "VecSink",
]

_LAZY = {
    "FileSinkPosition": "malflow.connectors.files.local_file",
    "UnwritableValue": "malflow.connectors.files.sinks",
    "CsvSink": "malflow.connectors.files.csv_sink",
    "JsonLinesSink": "malflow.connectors.files.sinks",
    "TextFileSink": "malflow.connectors.files.sinks",
    "StdOutSink": "malflow.sinks.stdout",
    "VecSink": "malflow.sinks.vec",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
