"""Where records go: the contracts of a sink, and the built-in ones."""

from malflow.sinks.contract import (
    StatefulSink,
    StatefulSinkImpl,
    StatefulSinkPartition,
    StatelessSink,
    StatelessSinkImpl,
)
from malflow.sinks.stdout import StdOutSink
from malflow.sinks.vec import VecSink

__all__ = [
    "StatefulSink",
    "StatefulSinkImpl",
    "StatefulSinkPartition",
    "StatelessSink",
    "StatelessSinkImpl",
    "StdOutSink",
    "VecSink",
]
