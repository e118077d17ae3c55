"""The columns that an expression may name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from malflow.sql.syntax.expressions import Name, Reference, quoted_name
from malflow.sql.text import Fault, Source, Span, SqlError
from malflow.sql.typed import Column
from malflow.sql.types import SqlType
from malflow.words import did_you_mean, listed

__all__ = ["Field", "Scope", "WindowSpec", "at_end"]


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """How rows are cut into windows; spans are in units of the time attribute.

    Attributes:
        kind: TUMBLE, HOP, CUMULATE, SESSION or COUNTING; END for one window that closes at the end of the input.
        size: the span of a window, the gap of sessions, or how many rows a window has.
        step: the span between the starts of two windows, or how much a window grows.
        offset: the start of a window, from 1970.
    """

    kind: str
    size: int
    step: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Field:
    """A column of some rows.

    Attributes:
        name: its name.
        type: its type.
        table: the name of its table in the query; empty if it has none.
        is_time: whether it is the time attribute of the rows.
        window: of a column of a window which one, `start`, `end` or `time`, and the windows; of others None.
        written: the canonical text of the expression that it was computed by; None for its name.
    """

    name: str
    type: SqlType
    table: str = ""
    is_time: bool = False
    window: tuple[str, WindowSpec] | None = None
    written: object = field(default=None, compare=False)

    @property
    def origin(self) -> object:
        """The canonical text of the expression that it was computed by."""
        return quoted_name(self.name) if self.written is None else self.written

    def is_time_as(self, kind: SqlType) -> bool:
        """Whether the column, as another type, is the time attribute still: only if its units are the same."""
        return self.is_time and (self.type.kind, self.type.size) == (kind.kind, kind.size)


def at_end(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return the columns of rows that come when their window closes: `window_time` is their time attribute."""
    return tuple(replace(it, is_time=it.window is not None and it.window[0] == "time") for it in fields)


class Scope:
    """The columns of the rows that an expression is about.

    Args:
        fields: the columns, in the order of the row.
        source: the text, for faults.
        inner: the first place of the columns that hide equal names before it.
    """

    def __init__(self, fields: Iterable[Field], source: Source, *, inner: int = 0) -> None:
        self.fields = tuple(fields)
        self.source = source
        self._inner = inner

    def fault(self, message: str, span: Span) -> SqlError:
        """Return the error of a fault at a place."""
        return SqlError([Fault(message, span, self.source)])

    def column(self, at: int, span: Span) -> Column:
        """Return a column by its place."""
        it = self.fields[at]
        return Column(it.type, span, at, it.name, it.is_time, written=it.origin)

    def find(self, reference: Reference) -> tuple[Column, tuple[Name, ...]]:
        """Return the column that a reference names, and the names of fields within it.

        Raises:
            SqlError: if there is none, or more than one.
        """
        first, *rest = reference.names
        if rest and any(it.table == first.text for it in self.fields):
            found = self._at(rest[0], [at for at, it in enumerate(self.fields) if it.table == first.text], first.text)
            return self.column(found, reference.span), tuple(rest[1:])
        if rest and not any(it.name == first.text for it in self.fields):
            tables = [it.table for it in self.fields if it.table]
            raise self.fault(
                f"no table or column {first.text!r}{did_you_mean(first.text, dict.fromkeys(tables))}", first.span
            )
        return self.column(self._at(first, range(len(self.fields)), ""), reference.span), tuple(rest)

    def _at(self, name: Name, places: Sequence[int], table: str) -> int:
        """Return the place of a column."""
        found = [at for at in places if self.fields[at].name == name.text]
        found = [at for at in found if at >= self._inner] or found
        if len(found) == 1:
            return found[0]
        where = f" in {table!r}" if table else ""
        if found:
            tables = dict.fromkeys(it for at in found if (it := self.fields[at].table))
            cure = f"write {listed((f'{it}.{name}' for it in tables), write=str)}" if len(tables) > 1 else "rename one"
            raise self.fault(f"column {name.text!r} is ambiguous{where}; {cure}", name.span)
        known = [self.fields[at].name for at in places]
        hint = meant(name.text, known, else_=None if known else "the query has no FROM")
        raise self.fault(f"no column {name.text!r}{where}{hint}", name.span)


def meant(name: str, known: Iterable[str], else_: str | None = None) -> str:
    """Return the end of a message about an unknown name: the same in other letters, a near one, or all."""
    names = list(known)
    other = [it for it in names if it.lower() == name.lower()]
    return f"; did you mean {other[0]!r}? names keep their case" if other else did_you_mean(name, names, else_=else_)
