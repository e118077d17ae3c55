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

from malflow.names import load_on_use
from malflow.version import __version__

if TYPE_CHECKING:
    from malflow.connectors.by_name import connect
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
    from malflow.operators.connected import ConnectLogic
    from malflow.operators.contract import OperatorContext, Output, StatefulLogic, StatelessLogic
    from malflow.operators.epochs.rounding import limit_out_of_orderness
    from malflow.operators.ttl import ExpireMap
    from malflow.partitioners import index_select, rendezvous_select
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
    from malflow.states.kinds import StateLayout
    from malflow.streams.operators.table import Table
    from malflow.streams.stream import KeyedStream, Stream, StreamProvider
else:
    load_on_use(
        __name__,
        {
            "Breaker": ".failures",
            "BreakerOpen": ".failures",
            "Budget": ".failures",
            "CommitUnknown": ".errors",
            "ConfigError": ".errors",
            "ConnectLogic": ".operators.connected",
            "DataMessage": ".message",
            "DeadLetter": ".failures",
            "ExpireMap": ".operators.ttl",
            "Failure": ".failures",
            "FencedError": ".errors",
            "GraphError": ".errors",
            "HotKey": ".runtime.progress.hot_keys",
            "KeyedStream": ".streams.stream",
            "MAX": ".message",
            "MIN": ".message",
            "MalflowError": ".errors",
            "MissingDependency": ".errors",
            "MultiProcessRuntime": ".runtime.processes.runtime",
            "NoKey": ".message",
            "OnError": ".failures",
            "OperatorContext": ".operators.contract",
            "OperatorError": ".errors",
            "Output": ".operators.contract",
            "Progress": ".runtime.progress.progress",
            "QueryError": ".errors",
            "Rate": ".failures",
            "RecordsRefused": ".errors",
            "Replayed": ".failures",
            "RestartPolicy": ".runtime.restarts",
            "Retry": ".failures",
            "RunFailed": ".errors",
            "RunHandle": ".runtime.handle",
            "SingleThreadRuntime": ".runtime.single_thread",
            "SnapshotCorrupt": ".errors",
            "SnapshotError": ".errors",
            "SnapshotIncomplete": ".errors",
            "SourceNotReplayable": ".errors",
            "SparkRuntime": ".runtime.spark.runtime",
            "StateLayout": ".states.kinds",
            "StateView": ".runtime.requests.state_views",
            "StatefulLogic": ".operators.contract",
            "StatelessLogic": ".operators.contract",
            "StoreError": ".errors",
            "Stream": ".streams.stream",
            "StreamProvider": ".streams.stream",
            "Table": ".streams.operators.table",
            "TableChange": ".message",
            "TimeRow": ".runtime.progress.time_table",
            "TimeTable": ".runtime.progress.time_table",
            "UnsupportedOperator": ".errors",
            "Why": ".runtime.why.answer",
            "WindowsView": ".runtime.requests.state_views",
            "agg": ".agg",
            "config": ".config",
            "connect": ".connectors.by_name",
            "draw": ".runtime.building",
            "drawing": ".drawing",
            "errors": ".errors",
            "events": ".events",
            "index_select": ".partitioners",
            "limit_out_of_orderness": ".operators.epochs.rounding",
            "lookups": ".lookups",
            "monitor": ".monitor",
            "patterns": ".patterns",
            "rendezvous_select": ".partitioners",
            "sinks": ".sinks",
            "snapshot": ".snapshot",
            "sources": ".sources",
            "store": ".store",
            "testing": ".testing",
            "windows": ".windows",
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
    "StateLayout",
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
