"""Delta Lake: a sink whose transactions are commits of the table."""

from malflow.errors import MissingDependency

try:
    import deltalake  # noqa: F401 - asked for here, so that the error names the extra
    import pyarrow  # noqa: F401
except ImportError as missing:
    raise MissingDependency(
        "malflow.connectors.delta needs deltalake and pyarrow; pip install 'malflow[delta]'"
    ) from missing

from malflow.connectors.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
