"""The conditions of a table that its rows must meet: constraints, computed columns, and columns without null."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import deltalake
import pyarrow as pa

from malflow.connectors.delta.schemas import fitted
from malflow.connectors.parquet.columns import UnfitRow

__all__ = ["Checks", "checks_of"]

_CONSTRAINT: Final = "delta.constraints."
_ROW: Final = "malflow row"


class _Condition(NamedTuple):
    """A condition of rows.

    Attributes:
        sql: SQL that is true for rows that meet it.
        reason: what is wrong with others.
        column: the column that rows must have for the condition to apply; empty if it always does.
    """

    sql: str
    reason: str
    column: str = ""


class Checks:
    """Find the rows that a table would refuse. deltalake itself refuses the commit as a whole, and names no row.

    Args:
        schema: the schema of the table.
        conditions: its conditions.
    """

    def __init__(self, schema: pa.Schema, conditions: Sequence[_Condition]) -> None:
        self._schema = schema
        self._conditions = conditions

    def broken(self, data: pa.Table) -> dict[int, str]:
        """Return why rows would be refused, by their numbers.

        Raises:
            Exception: any of deltalake, if it can't compute a condition.
        """
        rows = fitted(data, self._schema, grows=True).append_column(_ROW, pa.array(range(data.num_rows), pa.int64()))
        conditions = [it for it in self._conditions if not it.column or it.column in data.column_names]
        if not conditions:
            return {}
        fails = [f"(({it.sql}) is not true)" for it in conditions]
        query = f'select "{_ROW}", {", ".join(fails)} from written where {" or ".join(fails)} order by 1'  # noqa: S608 - conditions are SQL
        with TemporaryDirectory() as folder:
            deltalake.write_deltalake(folder, rows)
            written = deltalake.QueryBuilder().register("written", deltalake.DeltaTable(folder))
            found: Any = pa.table(written.execute(query).read_all())
        numbers, *failed = (column.to_pylist() for column in found.columns)
        return {
            number: next(it.reason for it, fails in zip(conditions, each, strict=True) if fails)
            for number, *each in zip(numbers, *failed, strict=True)
        }

    def refuse(self, target: str, batch: pa.RecordBatch, rows: Sequence[Any]) -> None:
        """Refuse rows that the table would refuse.

        Args:
            target: the table.
            batch: the rows as columns.
            rows: the rows as they came.

        Raises:
            UnfitRow: naming the first.
        """
        for at, reason in self.broken(pa.Table.from_batches([batch])).items():
            raise UnfitRow(target, None, rows[at], reason)


def checks_of(table: Any, known: Collection[str]) -> Checks | None:
    """Return the checks of a table; None if it has no conditions.

    Args:
        table: the table.
        known: the columns that are known to have no null.
    """
    conditions = [*_conditions(table, known)]
    return Checks(pa.schema(table.schema().to_arrow()), conditions) if conditions else None


def _conditions(table: Any, known: Collection[str]) -> Iterator[_Condition]:
    for name, sql in table.metadata().configuration.items():
        if name.startswith(_CONSTRAINT):
            yield _Condition(sql, f"the constraint '{name.removeprefix(_CONSTRAINT)}' of the table is {sql}")
    for field in table.schema().fields:
        column, computed = f'"{field.name}"', (field.metadata or {}).get("delta.generationExpression")
        invariant = (field.metadata or {}).get("delta.invariants")
        if invariant is not None:
            sql = json.loads(invariant)["expression"]["expression"]
            yield _Condition(sql, f"the invariant of column '{field.name}' is {sql}")
        if computed is not None:
            sql = f"{column} is not distinct from ({computed})"
            yield _Condition(sql, f"the table computes column '{field.name}' as {computed}", field.name)
        elif not field.nullable and field.name not in known:
            yield _Condition(f"{column} is not null", f"column '{field.name}' is null, which the table does not allow")
