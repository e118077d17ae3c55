"""The sink contracts, and the built-in sinks.

The sinks are imported on first use. Those of files need fsspec, which takes longer to import than everything else
together.
"""

from typing import TYPE_CHECKING

from malflow.names import load_on_use
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
else:
    load_on_use(
        __name__,
        {
            "CsvSink": "malflow.connectors.files.csv_sink",
            "FileSinkPosition": "malflow.connectors.files.local_file",
            "JsonLinesSink": "malflow.connectors.files.sinks",
            "StdOutSink": ".stdout",
            "TextFileSink": "malflow.connectors.files.sinks",
            "UnwritableValue": "malflow.connectors.files.sinks",
            "VecSink": ".vec",
        },
    )

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
