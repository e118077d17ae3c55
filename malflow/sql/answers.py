"""Answers about tables, views and functions by their names: SHOW, DESCRIBE, and messages about unknown ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from malflow.sql.bind.relations import Relation
from malflow.sql.bind.scope import Field, meant
from malflow.sql.build.python_aggregates import PythonAggregate
from malflow.sql.build.python_functions import Broken, Function
from malflow.sql.explain import aligned
from malflow.sql.functions.aggregates import AGGREGATES
from malflow.sql.functions.scalar import SCALAR
from malflow.sql.syntax.expressions import Name
from malflow.sql.tables import Table
from malflow.sql.text import Fault, Source, SqlError

__all__ = ["Answers"]


class Answers:
    """The answers of a catalogue, which changes meanwhile.

    Args:
        tables: its tables.
        views: its views.
        functions: its functions, by their names in capitals.
        texts: the CREATE statements of tables and views.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        views: Mapping[str, Relation],
        functions: Mapping[str, Function | PythonAggregate],
        texts: Mapping[str, str],
    ) -> None:
        self._tables, self._views, self._functions, self._texts = tables, views, functions, texts

    def shown(self, words: str) -> str:
        """Return the names that SHOW lists: of TABLES, VIEWS, USER FUNCTIONS or FUNCTIONS."""
        names: dict[str, Callable[[], list[str]]] = {
            "TABLES": lambda: [*self._tables, *self._views],
            "VIEWS": lambda: [*self._views],
            "USER FUNCTIONS": self._own_functions,
            "FUNCTIONS": lambda: [*{*SCALAR, *AGGREGATES, *self._own_functions()}],
        }
        return "\n".join(sorted(names[words]())) or "none"

    def created(self, name: str) -> str:
        """Return the statement that created a table or view."""
        return f"{self._texts[name]};"

    def described(self, name: str, fields: Sequence[Field]) -> str:
        """Return the columns of a table or view, with the rule of its watermark."""
        time = self._tables[name].time if name in self._tables else ""
        return aligned([(it.name, str(it.type), it.is_time * f"time {time}".rstrip()) for it in fields])

    def known(self, what: str, name: Name, text: Source) -> str:
        """Return the name of a table, view or function.

        Raises:
            SqlError: if there is none.
        """
        kinds = {"TABLE": [*self._tables], "VIEW": [*self._views], "FUNCTION": self._own_functions()}
        if name.text in kinds[what] or (what == "FUNCTION" and name.text.upper() in self._functions):
            return name.text
        other = next((it for it in kinds if name.text in kinds[it]), None)
        hint = f"; it is a {other.lower()}" if other else meant(name.text, kinds[what])
        raise SqlError([Fault(f"no {what.lower()} {name.text!r}{hint}", name.span, text)])

    def has(self, name: str) -> bool:
        """Whether there is a table, view or function of a name."""
        return name in {**self._tables, **self._views} or name.upper() in self._functions

    def _own_functions(self) -> list[str]:
        """Return the names of functions of Python, as they were given."""
        return [it.name for it in self._functions.values() if not isinstance(it, Broken)]
