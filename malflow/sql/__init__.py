"""SQL over streams: a text becomes operators of the same dataflow.

`provider.sql(name)` makes a catalogue, `malflow run shop.sql` runs a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from malflow.names import load_on_use

if TYPE_CHECKING:
    from malflow.sql.api import ColumnType, Sql, SqlRows
    from malflow.sql.text import SqlError
else:
    load_on_use(__name__, {"ColumnType": ".api", "Sql": ".api", "SqlError": ".text", "SqlRows": ".api"})

__all__ = ["ColumnType", "Sql", "SqlError", "SqlRows"]
