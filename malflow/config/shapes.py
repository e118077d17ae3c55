"""The types of settings, from the annotations of their tables."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from malflow.config.entries import Path
from malflow.config.tables import Table, Tables
from malflow.connectors.option_texts import kinds_of

__all__ = ["WHOLE", "Entries", "Leaf", "Shape", "TableShape", "every_leaf", "shape_at", "shape_of"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value, by its annotation."""

    hint: Any

    @property
    def optional(self) -> bool:
        """Whether it may be none."""
        return get_origin(self.hint) in (Union, types.UnionType) and type(None) in get_args(self.hint)


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table with known settings."""

    table: type[Table]

    @property
    def members(self) -> dict[str, Shape]:
        """The shape of each setting."""
        table: Any = self.table
        return _members(table)


@dataclass(frozen=True, slots=True)
class Entries:
    """A table with any names, and what each of them has; None for any values and tables."""

    inner: Shape | None


Shape: TypeAlias = Leaf | TableShape | Entries


@cache
def _members(table: Any) -> dict[str, Shape]:
    hints = get_type_hints(table)
    return {it.name: shape_of(hints[it.name]) for it in fields(table)}


def shape_of(hint: Any) -> Shape:
    """Return the shape of the values of an annotation."""
    for kind in kinds_of(hint):
        if is_dataclass(kind) and isinstance(kind, type) and issubclass(kind, Table):
            return TableShape(kind)
        if get_origin(kind) is Mapping:
            inner = get_args(kind)[1]
            return Entries(None if inner is Any else shape_of(inner))
    return Leaf(hint)


def shape_at(path: Path) -> Shape | None:
    """Return the shape of a setting or table; None if nothing has this name."""
    shape: Shape | None = TableShape(Tables)
    for name in path:
        match shape:
            case TableShape():
                shape = shape.members.get(name)
            case Entries(inner):
                shape = inner
            case _:
                return None
    return shape


def every_leaf(shape: TableShape, path: Path = ()) -> Iterator[tuple[Path, Leaf | Entries]]:
    """Yield every setting with a fixed name, as it stands in the tables."""
    for name, member in shape.members.items():
        if isinstance(member, TableShape):
            yield from every_leaf(member, (*path, name))
        elif not (isinstance(member, Entries) and isinstance(member.inner, TableShape)):
            yield (*path, name), member


WHOLE = TableShape(Tables)
"""The shape of the whole configuration."""
