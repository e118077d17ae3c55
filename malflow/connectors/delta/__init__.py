"""Delta Lake: a sink whose transactions are commits of the table."""

from malflow.errors import not_imported

try:
    import deltalake  # noqa: F401 - asked for here, so that the error names the extra
    import pyarrow  # noqa: F401
except ImportError as missing:
    raise not_imported("malflow.connectors.delta needs deltalake and pyarrow", "delta", missing) from missing

from malflow.connectors.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
