"""Keys and their states as columns of Arrow, by the user's function or by a column for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

import pyarrow as pa

from malflow.connectors.parquet.columns import Columns
from malflow.diagnostics import operator_error
from malflow.errors import GraphError
from malflow.snapshot.placed_states import WorkerStates
from malflow.states.kinds import Movement

__all__ = ["OwnRows", "Row", "StateRows", "Stored", "column_names"]

Row = Callable[[Any, Any], Mapping[str, Any] | None]
"""Returns the columns of a key and its state, or None to leave the key out."""

Stored = Callable[[pa.DataType], pa.DataType] | None
"""Returns the type with which a file stores another; None for a table in memory."""

_STATE = "state"


def column_names(kept: WorkerStates) -> list[str]:
    """Return the names of the columns of rows that the user does not make."""
    movement = None if kept.kind is None else kept.kind.movement
    if movement is Movement.BY_SLOT:
        return ["pane", "key", _STATE]
    if movement is Movement.BY_ENTRY:
        return ["pane", "key", "id", _STATE]
    return ["worker", "name", _STATE] if kept.is_by_worker else ["key", _STATE]


class OwnRows:
    """Rows that the user's function makes.

    Args:
        name: the operator.
        row: the function.
        schema: the schema; None to infer it from the first rows.
        stored: returns the type with which a file stores another.
    """

    def __init__(self, name: str, row: Row, schema: pa.Schema | None, stored: Stored) -> None:
        self._name = name
        self._row = row
        self._columns = Columns(name, schema, stored)

    def make(self, keys: Sequence[Any], states: Sequence[Any]) -> pa.RecordBatch | None:
        """Return a batch of the rows of some keys; None if there are none.

        Raises:
            OperatorError: if the function fails.
            UnfitRow: if a row does not fit the schema.
        """
        rows, row = [], self._row
        key = state = None
        try:
            for key, state in zip(keys, states, strict=True):
                made = row(key, state)
                if made is not None:
                    rows.append(made)
        except Exception as error:
            raise operator_error(self._name, error, (key, state, None), row) from error
        return self._columns.make(rows) if rows else None


class StateRows:
    """Rows with a column for each part of a key, and one for its state: a struct if states are records or tuples.

    Args:
        kept: the states.
        schema: the schema; None to infer it from the first rows.
        stored: returns the type with which a file stores another.

    Raises:
        GraphError: if the schema has other columns.
    """

    def __init__(self, kept: WorkerStates, schema: pa.Schema | None, stored: Stored) -> None:
        self._names = column_names(kept)
        self._name = name = kept.entry.name
        self._stored = stored
        self._fields: Columns | None = None
        if schema is not None and schema.names != self._names:
            raise GraphError(
                f"the columns of operator '{name}' are {', '.join(self._names)}; the schema has "
                f"{', '.join(schema.names) or 'none'}; pass row= for other columns"
            )
        self._is_first = schema is None
        if schema is not None and pa.types.is_struct(schema.field(_STATE).type):
            self._divide(pa.schema(list(schema.field(_STATE).type)))
            schema = pa.schema(list(schema)[:-1])
        self._columns = Columns(name, schema, stored)

    def make(self, keys: Sequence[Any], states: Sequence[Any]) -> pa.RecordBatch:
        """Return a batch of some keys, at least one, with their states.

        Raises:
            UnfitRow: if a value does not fit the schema.
        """
        if self._is_first and _are_records(states):
            self._divide(None)
        self._is_first = False
        parts = self._parts(keys)
        if self._fields is None:
            return self._columns.make_columns(self._names, [*parts, states])
        known = self._columns.make_columns(self._names[:-1], parts)
        made = self._records(self._fields, states)
        struct = pa.StructArray.from_arrays(made.columns, fields=list(made.schema))
        return pa.RecordBatch.from_arrays([*known.columns, struct], names=self._names)

    def _divide(self, fields: pa.Schema | None) -> None:
        """Make the state a struct with these fields."""
        self._fields = Columns(self._name, fields, self._stored)

    def _parts(self, keys: Sequence[Any]) -> list[Sequence[Any]]:
        match len(self._names):
            case 2:
                return [keys]
            case 3:
                return list(zip(*keys, strict=True))
        return list(zip(*[(slot[0], *slot[1]) for slot in keys], strict=True))

    def _records(self, fields: Columns, states: Sequence[Any]) -> pa.RecordBatch:
        width = _width(states)
        if width is None:
            return fields.make(states)
        names = [f"_{number}" for number in range(1, width + 1)] if fields.schema is None else fields.schema.names
        return fields.make_columns(names, [[state[at] for state in states] for at in range(width)])


def _are_records(states: Sequence[Any]) -> bool:
    """Whether all states are dicts, dataclasses or named tuples, or all are tuples of one length."""
    return all(map(_is_record, set(map(type, states)))) or _width(states) is not None


def _width(states: Sequence[Any]) -> int | None:
    """Return the number of items of each state, if all are tuples without names; otherwise None."""
    if set(map(type, states)) != {tuple}:
        return None
    widths = set(map(len, states))
    return widths.pop() or None if len(widths) == 1 else None


def _is_record(kind: type) -> bool:
    return is_dataclass(kind) or issubclass(kind, Mapping) or (issubclass(kind, tuple) and hasattr(kind, "_asdict"))
