"""Relations: rows with named columns, and how they are made of others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from malflow.sql.bind.scope import Field
from malflow.sql.typed import Aggregated, Typed

__all__ = ["Calc", "Group", "Literals", "Relation", "Scan", "Union", "WindowSpec", "Windowed"]


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows.

    Attributes:
        fields: their columns.
        name: the name of the operator that makes them.
    """

    fields: tuple[Field, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Scan(Relation):
    """The rows of a table of the catalogue."""

    table: str


@dataclass(frozen=True, slots=True)
class Literals(Relation):
    """Rows that are written out."""

    rows: tuple[tuple[Typed, ...], ...]


@dataclass(frozen=True, slots=True)
class Calc(Relation):
    """The rows of an input for which a condition is true, with columns computed from its own."""

    input: Relation
    where: Typed | None
    items: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Union(Relation):
    """The rows of several inputs, with columns of the same types."""

    inputs: tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """How rows are cut into windows; spans are in units of the time attribute.

    Attributes:
        kind: TUMBLE, HOP, CUMULATE, SESSION or COUNTING.
        size: the span of a window, the gap of sessions, or the number of rows.
        step: the span between the starts of two windows.
        offset: the start of a window, from 1970.
    """

    kind: str
    size: int
    step: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Windowed(Relation):
    """Rows with the windows that they are in: `window_start`, `window_end`, `window_time` are the last columns.

    Attributes:
        input: the rows.
        time: the place of the time attribute.
        spec: the windows.
        partition: the columns whose values have sessions, or counts, of their own.
    """

    input: Relation
    time: int
    spec: WindowSpec
    partition: tuple[Typed, ...] = ()


@dataclass(frozen=True, slots=True)
class Group(Relation):
    """One row for each window and group.

    Attributes:
        input: a calculation whose columns are the keys, then the operands of the aggregates.
        keys: how many columns are keys.
        aggregates: the aggregates; the operands of each are columns of the input.
        spec: the windows.
        late: whether late rows count in windows that are open.
    """

    input: Relation
    keys: int
    aggregates: tuple[Aggregated, ...]
    spec: WindowSpec
    notes: dict[str, Any] = field(default_factory=dict, compare=False)
