"""Batches as columns of Arrow: `Frame` for values, `Column` for keys and timestamps.

This is the only room of the core that needs pyarrow and numpy: ``pip install 'malflow[columns]'``. Other rooms import
it when they meet the first frame.
"""

from malflow.errors import MissingDependency

try:
    import numpy as _numpy  # noqa: F401 - to say what is missing
    import pyarrow as _pyarrow  # noqa: F401 - to say what is missing
except ImportError as error:
    raise MissingDependency("columns need pyarrow and numpy; pip install 'malflow[columns]'") from error

from malflow.columns.column import Column
from malflow.columns.frame import Frame

__all__ = ["Column", "Frame"]
