"""Parquet files, tables of Arrow and streams of record batches, read and written as columns."""

from malflow.errors import not_imported

try:
    import pyarrow  # noqa: F401 - asked for here, so that the error names the extra
except ImportError as missing:
    raise not_imported("malflow.connectors.parquet needs pyarrow", "parquet", missing) from missing

from malflow.connectors.parquet.arrow_source import ArrowSource
from malflow.connectors.parquet.sink import ParquetSink
from malflow.connectors.parquet.source import ParquetSource

__all__ = ["ArrowSource", "ParquetSink", "ParquetSource"]
