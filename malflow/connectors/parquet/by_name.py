"""Parquet files by their URL."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any

from malflow.connectors.address import Address
from malflow.connectors.parquet.sink import ParquetSink
from malflow.connectors.parquet.source import ParquetSource
from malflow.errors import GraphError

__all__ = ["sink", "source"]

_ROWS: Mapping[Any, Any] = {"dict": dict, "tuple": tuple}


@wraps(ParquetSource)
def source(address: Address, /, **options: Any) -> ParquetSource:
    """Return the source of a path or URL."""
    if isinstance(row := options.get("row"), str):
        options["row"] = _ROWS.get(row, row)
    return ParquetSource(address.url, **options)


@wraps(ParquetSink)
def sink(address: Address, /, **options: Any) -> ParquetSink[Any, Any, Any]:
    """Return the sink into a folder.

    Raises:
        GraphError: if the URL names a file.
    """
    if address.url.endswith((".parquet", ".pq")):
        raise GraphError(
            f"'{address}' names a file, but a sink writes several into a folder; write the folder and ?format=parquet"
        )
    return ParquetSink(address.url, **options)
