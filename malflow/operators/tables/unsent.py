"""Values that a database did not send, since they did not change: they are taken from the present row."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from malflow.states.keyed import ATOMIC_TYPES

__all__ = ["Unsent"]

_HOME = "malflow.connectors.tables.change"
"""The module of `UNCHANGED` and `Change`: a value can't be one of them before it is loaded."""

_MEND = "alter table ... replica identity full, so that the database sends every value"


class Unsent:
    """Finds `UNCHANGED` in rows, and changes of a database that are no rows; both are possible only with connectors.

    Rows may be mappings, tuples, named tuples and dataclasses; in other objects, `UNCHANGED` is not found.
    """

    def __init__(self) -> None:
        home = sys.modules[_HOME]
        self._mark: Any = home.UNCHANGED
        self.change: Any = home.Change

    @staticmethod
    def known() -> Unsent | None:
        """Return one; None if no connector is loaded that makes such values."""
        return Unsent() if _HOME in sys.modules else None

    def check_not_change(self, value: Any) -> None:
        """Check that a value is not a change as a database tells it.

        Raises:
            TypeError: if it is, with the way to make rows of it.
        """
        if type(value) is not self.change:
            return
        if value.kind == "truncate":
            raise TypeError(
                f"a truncation of {value.table} has no key; make rows of the changes first: "
                '.flat_map("rows", rows_by_key("id")), of malflow.connectors.tables, whose on_truncate="skip" drops it'
            )
        raise TypeError(
            "a Change of a database is not a row, and may move a row to another key; make rows of it first: "
            '.flat_map("rows", rows_by_key("id")).key_distribute("by id", "key").to_table("table", row="row"), with '
            "rows_by_key of malflow.connectors.tables and the columns of the key"
        )

    def are_whole(self, rows: Sequence[Any], kinds: set[type]) -> bool:
        """Whether all values of all rows were surely sent, by a look at the columns of rows of one usual kind.

        None is whole.
        """
        if kinds <= ATOMIC_TYPES:
            return True
        if type(None) in kinds:
            rows, kinds = [row for row in rows if row is not None], kinds - {type(None)}
        if kinds == {dict}:
            return self._mark not in chain.from_iterable(map(dict.values, rows))
        return all(issubclass(kind, tuple) for kind in kinds) and self._mark not in chain.from_iterable(rows)

    def is_partial(self, row: Any) -> bool:
        """Whether a value of a row was not sent."""
        mark = self._mark
        if isinstance(row, Mapping):
            return any(value is mark for value in row.values())
        if isinstance(row, tuple):
            return any(value is mark for value in row)
        if dataclasses.is_dataclass(row) and not isinstance(row, type):
            return any(getattr(row, field.name) is mark for field in dataclasses.fields(row))
        return row is mark

    def completed(self, row: Any, present: Any) -> Any:
        """Return a row with the values that were not sent taken from the present one.

        Args:
            row: the new row.
            present: the present row, or None.

        Raises:
            ValueError: if there is no present row, or it does not have the value.
        """
        if row is None or not self.is_partial(row):
            return row
        if present is None or type(present) is not type(row):
            raise self._unknown(row, "there is no row of this key yet to take it from")
        mark = self._mark
        if isinstance(row, Mapping):
            lost = [name for name, value in row.items() if value is mark and present.get(name, mark) is mark]
            if lost:
                raise self._unknown(row, "the present row of this key does not have it")
            return {name: present[name] if value is mark else value for name, value in row.items()}
        if isinstance(row, tuple):
            values = (old if new is mark else new for new, old in zip(row, present, strict=True))
            return type(row)(*values) if hasattr(row, "_fields") else tuple(values)
        if row is mark:
            return present
        names = [field.name for field in dataclasses.fields(row) if getattr(row, field.name) is mark]
        return dataclasses.replace(row, **{name: getattr(present, name) for name in names})

    def _unknown(self, row: Any, why: str) -> ValueError:
        names = [repr(name) for name, value in row.items() if value is self._mark] if isinstance(row, Mapping) else []
        what = f"column {', '.join(names)}" if names else "a value of the row"
        return ValueError(f"{what} was not sent, as it did not change, and {why}; {_MEND}")
