"""Relations: rows with named columns, and how they are made of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from malflow.sql.bind.scope import Field, WindowSpec
from malflow.sql.text import Source
from malflow.sql.typed import Aggregated, Typed

__all__ = [
    "Calc",
    "Collected",
    "Expanded",
    "Group",
    "Joined",
    "Literals",
    "Lost",
    "Numbered",
    "Parted",
    "Relation",
    "Scan",
    "Top",
    "Union",
    "Windowed",
    "Within",
    "inputs",
    "may_be_late",
    "scans",
    "within",
]


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
class Parted(Relation):
    """The rows of an input that are on time, or the late ones.

    Attributes:
        input: the rows.
        is_late: whether it is the late ones.
    """

    input: Relation
    is_late: bool


@dataclass(frozen=True, slots=True)
class Windowed(Relation):
    """Rows with the windows that they are in: `window_start`, `window_end`, `window_time` are the last columns.

    Attributes:
        input: the rows.
        time: the place of the time attribute; of COUNTING any, as it needs none.
        spec: the windows.
        partition: the columns of the key. Each key has its own sessions, or counts.
    """

    input: Relation
    time: int
    spec: WindowSpec
    partition: tuple[Typed, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the window of a row is known when it closes, and depends on the rows of its partition."""
        return self.spec.kind in {"SESSION", "COUNTING"}


@dataclass(frozen=True, slots=True)
class Collected(Relation):
    """The rows of windows that depend on their key's rows, with their window: they come when it closes.

    Attributes:
        input: a calculation of the keys, then the rows.
        keys: how many columns are keys.
        spec: the windows.
    """

    input: Relation
    keys: int
    spec: WindowSpec


@dataclass(frozen=True, slots=True)
class Group(Relation):
    """One row for each window and group.

    Attributes:
        input: a calculation of the keys, then the operands of the aggregates.
        keys: how many columns are keys.
        aggregates: the aggregates; the operands of each are columns of the input.
        spec: the windows.
        is_carried: whether the rows already had the first two keys: the start and end of their window.
    """

    input: Relation
    keys: int
    aggregates: tuple[Aggregated, ...]
    spec: WindowSpec
    is_carried: bool = False


@dataclass(frozen=True, slots=True)
class Joined(Relation):
    """Rows of two inputs side by side: in an interval of time, or in one window.

    Attributes:
        left: calculations of the keys of the join, then the row.
        right: the same of the other side.
        keys: how many columns are keys.
        how: INNER, LEFT, RIGHT or FULL; SEMI for left rows with a partner, ANTI for the ones without.
        interval: how many units the right row may be before the left one (negative: must be later), and after it.
        spec: the windows; None for an interval.
        rest: what two rows of a window must satisfy beside equal keys; None for nothing.
    """

    left: Relation
    right: Relation
    keys: int
    how: str
    interval: tuple[int, int] = (0, 0)
    spec: WindowSpec | None = None
    rest: Typed | None = None


@dataclass(frozen=True, slots=True)
class Expanded(Relation):
    """The rows of an input, once for each element of a collection, with the columns of the element.

    Attributes:
        input: the rows.
        operand: the collection: an array, a map, or the rows of a table function.
        width: how many columns an element has.
        is_left: whether rows without elements stay.
        ordinality: whether the number of the element, from 1, is a column.
    """

    input: Relation
    operand: Typed
    width: int
    is_left: bool
    ordinality: bool = False


@dataclass(frozen=True, slots=True)
class Numbered(Relation):
    """Rows with their number within a partition; `Top` keeps the first ones. It is never built.

    Attributes:
        input: the rows.
        partition: the partition.
        order: what they are ordered by: the expression, whether descending, and whether NULL comes first.
        number: the place of the number among the columns.
        spec: the windows. Their bounds are in the partition.
        is_newest: whether the order is that of time, from the last one on.
    """

    input: Relation
    partition: tuple[Typed, ...]
    order: tuple[tuple[Typed, bool, bool], ...]
    number: int
    spec: WindowSpec
    is_newest: bool = False


@dataclass(frozen=True, slots=True)
class Top(Relation):
    """The first rows of each window and partition; their number is the last column.

    Attributes:
        input: a calculation of the keys, then the order, then the rows.
        keys: how many columns are keys.
        order: whether each is descending, and whether NULL comes first.
        count: how many rows stay.
        spec: the windows.
        is_newest: whether it is the last row by time: of equal ones the one that came last.
        number: the place of the column that becomes the number, in the rows.
    """

    input: Relation
    keys: int
    order: tuple[tuple[bool, bool], ...]
    count: int
    spec: WindowSpec
    is_newest: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True)
class Lost(Relation):
    """The rows that an operator dropped because they were late.

    Attributes:
        input: the windows, first rows or join. The rows are the ones of its input.
        side: of a join which input: 0 or 1.
    """

    input: Relation
    side: int = 0


@dataclass(frozen=True, slots=True)
class Within(Relation):
    """The rows of an input that belongs to another text, or has another policy for rows that fail.

    Attributes:
        input: the rows.
        on_error: the policy for rows that fail.
        source: the text of its expressions; None for the text around it.
    """

    input: Relation
    on_error: str
    source: Source | None = None


def within(relation: Relation, on_error: str, source: Source | None = None) -> Relation:
    """Return rows with a policy and a text of their own, for use in others."""
    if isinstance(relation, Numbered):
        return replace(relation, input=within(relation.input, on_error, source))
    return Within(relation.fields, relation.name, relation, on_error, source)


def inputs(relation: Relation) -> Iterator[Relation]:
    """Yield the relations that a relation is made of."""
    for it in fields(relation):
        value = getattr(relation, it.name)
        if isinstance(value, Relation):
            yield value
        elif isinstance(value, tuple):
            yield from (part for part in value if isinstance(part, Relation))


def scans(relation: Relation) -> Iterator[Scan]:
    """Yield the tables of the catalogue that a relation reads."""
    if isinstance(relation, Scan):
        yield relation
    for it in inputs(relation):
        yield from scans(it)


def may_be_late(relation: Relation) -> bool:
    """Whether some rows of a relation may be late. The results of windows and of joins are on time."""
    match relation:
        case Scan():
            return any(it.is_time for it in relation.fields)
        case Union():
            return any(map(may_be_late, relation.inputs))
        case Calc() | Windowed() | Expanded() | Within():
            return may_be_late(relation.input)
        case Parted():
            return relation.is_late and may_be_late(relation.input)
    return False
