"""States of snapshots as windows, Arrow tables and Parquet files; `malflow.snapshot` reads the states themselves."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from malflow.errors import MissingDependency

if TYPE_CHECKING:
    from malflow.reading.tables import export_state, to_arrow
    from malflow.reading.windows import read_windows

__all__ = ["export_state", "read_windows", "to_arrow"]

_ROOMS = {"export_state": "tables", "read_windows": "windows", "to_arrow": "tables"}


def __getattr__(name: str) -> Any:
    """Import names that need optional libraries on first access.

    Raises:
        MissingDependency: if pyarrow is not installed.
    """
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        room = import_module(f"{__name__}.{_ROOMS[name]}")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise MissingDependency(f"malflow.reading.{name} needs pyarrow; pip install 'malflow[parquet]'") from error
    return getattr(room, name)
