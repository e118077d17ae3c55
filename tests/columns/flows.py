"""Small dataflows on columns, and what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.parquet import ArrowSource
from malflow.sinks import VecSink

__all__ = ["cut", "records_of", "values_of"]


def records_of(
    data: Any, build: Callable[[Any], Any], **options: Any
) -> tuple[list[tuple[Any, Any, Any]], SingleThreadRuntime]:
    """Return the records that a stream of the rows of Arrow data gives: key, value and timestamp; with the run.

    Args:
        data: a table, or record batches, each of which is one in the stream.
        build: adds operators.
        options: those of the runtime.
    """
    sink: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        build(provider.new_stream().source("rows", ArrowSource(data))).sink("out", sink)

    runtime = SingleThreadRuntime(build_dataflow, **options)
    runtime.execute()
    return [(msg.key, msg.value, msg.timestamp) for msg in sink], runtime


def values_of(data: Any, build: Callable[[Any], Any], **options: Any) -> list[Any]:
    """Return the values that a stream of the rows of Arrow data gives."""
    return [value for _, value, _ in records_of(data, build, **options)[0]]


def cut(table: pa.Table, sizes: Sequence[int]) -> list[pa.RecordBatch]:
    """Return the rows of a table in batches of some sizes, and the rest in another."""
    whole = table.combine_chunks().to_batches()[0] if len(table) else None
    found, at = [], 0
    for size in (*sizes, len(table)):
        if whole is not None and size and at < len(table):
            found.append(whole.slice(at, size))
            at += size
    return found
