"""malflow: write a dataflow as a script, test it like a function, run it in one thread, on all cores, or on Spark.

A stream processor with per-key state, event time and snapshots. A function builds the dataflow from sources, operators
and sinks. A runtime runs it, and a later run resumes exactly from the last snapshot.

- `SingleThreadRuntime` runs a dataflow in one thread, `MultiProcessRuntime` in a process for each core (``pip install
  'malflow[processes]'``), `SparkRuntime` on Apache Spark (``pip install 'malflow[spark]'``).
- `Stream` and `KeyedStream` have the operators; `malflow.sources` and `malflow.sinks` have sources and sinks.
- `malflow.snapshot` persists state between runs; `malflow.testing` has test helpers; `malflow.errors` documents the
  exception hierarchy.

>>> from malflow.sinks import VecSink
>>> from malflow.sources import SingleIteratorSource
>>> totals = VecSink()
>>> def build_dataflow(provider):
...     (
...         provider.new_stream()
...         .source("numbers", SingleIteratorSource(range(5)))
...         .key_distribute("parity", lambda msg: msg.value % 2)
...         .stateful_map("sum", lambda key, value, state: (state + value, state + value), default=int)
...         .sink("totals", totals)
...     )
>>> SingleThreadRuntime(build_dataflow).execute()
>>> totals.values
[0, 1, 2, 4, 6]
"""

from typing import TYPE_CHECKING

from malflow.errors import (
    CommitUnknown,
    ConfigError,
    FencedError,
    GraphError,
    MalflowError,
    MissingDependency,
    OperatorError,
    QueryError,
    RecordsRefused,
    RunFailed,
    SnapshotCorrupt,
    SnapshotError,
    SnapshotIncomplete,
    SourceNotReplayable,
    StoreError,
    UnsupportedOperator,
)
from malflow.failures import Breaker, BreakerOpen, Budget, DeadLetter, Failure, OnError, Rate, Replayed, Retry
from malflow.message import MAX, MIN, DataMessage, NoKey, TableChange
from malflow.names import loaded_on_use
from malflow.operators.connected import ConnectLogic
from malflow.operators.contract import OperatorContext, Output, StatefulLogic, StatelessLogic
from malflow.operators.epochs.rounding import limit_out_of_orderness
from malflow.operators.ttl import ExpireMap
from malflow.partitioners import index_select, rendezvous_select
from malflow.streams.operators.table import Table
from malflow.streams.stream import KeyedStream, Stream, StreamProvider
from malflow.version import __version__

if TYPE_CHECKING:
    from malflow.connectors.by_name import connect
    from malflow.runtime.building import draw
    from malflow.runtime.handle import RunHandle
    from malflow.runtime.processes.runtime import MultiProcessRuntime
    from malflow.runtime.progress.hot_keys import HotKey
    from malflow.runtime.progress.progress import Progress
    from malflow.runtime.progress.time_table import TimeRow, TimeTable
    from malflow.runtime.requests.state_views import StateView, WindowsView
    from malflow.runtime.restarts import RestartPolicy
    from malflow.runtime.single_thread import SingleThreadRuntime
    from malflow.runtime.spark.runtime import SparkRuntime
    from malflow.runtime.why.answer import Why
else:
    # a dataflow does not need them to be built: runtimes, what a run answers, and drawings
    __getattr__ = loaded_on_use(
        __name__,
        {
            "HotKey": ".runtime.progress.hot_keys",
            "MultiProcessRuntime": ".runtime.processes.runtime",
            "Progress": ".runtime.progress.progress",
            "RestartPolicy": ".runtime.restarts",
            "RunHandle": ".runtime.handle",
            "SingleThreadRuntime": ".runtime.single_thread",
            "SparkRuntime": ".runtime.spark.runtime",
            "StateView": ".runtime.requests.state_views",
            "TimeRow": ".runtime.progress.time_table",
            "TimeTable": ".runtime.progress.time_table",
            "Why": ".runtime.why.answer",
            "WindowsView": ".runtime.requests.state_views",
            "connect": ".connectors.by_name",
            "draw": ".runtime.building",
        },
    )

__all__ = [
    "MAX",
    "MIN",
    "Breaker",
    "BreakerOpen",
    "Budget",
    "CommitUnknown",
    "ConfigError",
    "ConnectLogic",
    "DataMessage",
    "DeadLetter",
    "ExpireMap",
    "Failure",
    "FencedError",
    "GraphError",
    "HotKey",
    "KeyedStream",
    "MalflowError",
    "MissingDependency",
    "MultiProcessRuntime",
    "NoKey",
    "OnError",
    "OperatorContext",
    "OperatorError",
    "Output",
    "Progress",
    "QueryError",
    "Rate",
    "RecordsRefused",
    "Replayed",
    "RestartPolicy",
    "Retry",
    "RunFailed",
    "RunHandle",
    "SingleThreadRuntime",
    "SnapshotCorrupt",
    "SnapshotError",
    "SnapshotIncomplete",
    "SourceNotReplayable",
    "SparkRuntime",
    "StateView",
    "StatefulLogic",
    "StatelessLogic",
    "StoreError",
    "Stream",
    "StreamProvider",
    "Table",
    "TableChange",
    "TimeRow",
    "TimeTable",
    "UnsupportedOperator",
    "Why",
    "WindowsView",
    "__version__",
    "connect",
    "draw",
    "index_select",
    "limit_out_of_orderness",
    "rendezvous_select",
]
