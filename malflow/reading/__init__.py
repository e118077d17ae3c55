"""States of snapshots as windows, Arrow tables and Parquet files; `malflow.snapshot` reads the states themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from malflow.names import load_on_use

if TYPE_CHECKING:
    from malflow.reading.tables import export_state, to_arrow
    from malflow.reading.windows import read_windows
else:
    load_on_use(
        __name__,
        {
            "export_state": ".tables",
            "read_windows": ".windows",
            "to_arrow": ".tables",
        },
        "pyarrow",
        "parquet",
    )

__all__ = ["export_state", "read_windows", "to_arrow"]
