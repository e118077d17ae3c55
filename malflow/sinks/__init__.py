"""Where records go: the contracts of a sink, and the built-in ones."""

from malflow.sinks.contract import (
    StatefulSink,
    StatefulSinkImpl,
    StatefulSinkPartition,
    StatelessSink,
    StatelessSinkImpl,
)
from malflow.sinks.files import UnwritableValue
from malflow.sinks.json_lines import JsonLinesSink
from malflow.sinks.stdout import StdOutSink
from malflow.sinks.text_file import TextFileSink
from malflow.sinks.vec import VecSink

__all__ = [
    "JsonLinesSink",
    "StatefulSink",
    "StatefulSinkImpl",
    "StatefulSinkPartition",
    "StatelessSink",
    "StatelessSinkImpl",
    "StdOutSink",
    "TextFileSink",
    "UnwritableValue",
    "VecSink",
]
