"""Parquet files by their URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa

from malflow.connectors.address import Address
from malflow.connectors.files.listing import OnReplaced
from malflow.connectors.files.partitions import Partitions
from malflow.connectors.files.renamed import OnRenamed
from malflow.connectors.lost_output import OnDataLoss
from malflow.connectors.parquet.rows import Nanoseconds
from malflow.connectors.parquet.sink import ParquetSink
from malflow.connectors.parquet.source import ParquetSource
from malflow.durations import Duration
from malflow.errors import GraphError

__all__ = ["sink", "source"]

_ROWS: Mapping[str, Any] = {"dict": dict, "tuple": tuple}


def source(
    address: Address,
    /,
    *,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    timestamp: str | None = None,
    row: str = "dict",
    nanoseconds: Nanoseconds = "fail",
    on_replaced: OnReplaced = "fail",
    on_renamed: OnRenamed = "continue",
    storage_options: Mapping[str, Any] | None = None,
    in_order: bool = False,
    discover_every: Duration | None = None,
    partitions: Partitions | None = None,
) -> ParquetSource:
    """Return the source of a path or URL."""
    return ParquetSource(
        address.url,
        columns=columns,
        filter=filter,
        timestamp=timestamp,
        row=_ROWS.get(row, row) if isinstance(row, str) else row,
        nanoseconds=nanoseconds,
        on_replaced=on_replaced,
        on_renamed=on_renamed,
        storage_options=storage_options,
        in_order=in_order,
        discover_every=discover_every,
        partitions=partitions,
    )


def sink(
    address: Address,
    /,
    *,
    schema: pa.Schema | None = None,
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once",
    formatter: Callable[[Any], Any] | None = None,
    row_group_rows: int = 100_000,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry_for: Duration = timedelta(minutes=1),
    on_data_loss: OnDataLoss = "fail",
    on_workers: bool = True,
) -> ParquetSink[Any, Any, Any]:
    """Return the sink into a folder.

    Raises:
        GraphError: if the URL names a file.
    """
    if address.url.endswith((".parquet", ".pq")):
        raise GraphError(
            f"'{address}' names a file, but a sink writes several into a folder; write the folder and ?format=parquet"
        )
    return ParquetSink(
        address.url,
        schema=schema,
        delivery=delivery,
        formatter=formatter,
        row_group_rows=row_group_rows,
        settings=settings,
        storage_options=storage_options,
        retry_for=retry_for,
        on_data_loss=on_data_loss,
        on_workers=on_workers,
    )
