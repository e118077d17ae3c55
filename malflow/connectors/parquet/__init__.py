"""Parquet files, tables of Arrow and streams of record batches, read and written as columns."""

from typing import TYPE_CHECKING

from malflow.errors import not_imported
from malflow.names import load_on_use

try:
    import pyarrow  # noqa: F401 - asked for here, so that the error names the extra
except ImportError as missing:
    raise not_imported("malflow.connectors.parquet needs pyarrow", "parquet", missing) from missing

if TYPE_CHECKING:
    from malflow.connectors.parquet.arrow_source import ArrowSource
    from malflow.connectors.parquet.sink import ParquetSink
    from malflow.connectors.parquet.source import ParquetSource
else:
    load_on_use(
        __name__,
        {"ArrowSource": ".arrow_source", "ParquetSink": ".sink", "ParquetSource": ".source"},
        "pyarrow",
        "parquet",
    )

__all__ = ["ArrowSource", "ParquetSink", "ParquetSource"]
