"""A change of a row of a table."""

from __future__ import annotations

from typing import Generic, Literal, NamedTuple, TypeVar

from malflow.disk_names import written_as

__all__ = ["TableChange"]

V = TypeVar("V")


@written_as("malflow.TableChange")
class TableChange(NamedTuple, Generic[V]):
    """One change of one row of a `Table`. Its key is the record's key.

    Attributes:
        before: the row before the change; None if there was none.
        after: the row after the change; None if it was deleted.

    >>> TableChange(None, {"city": "Ulm"}).kind, TableChange({"city": "Ulm"}, None).kind
    ('insert', 'delete')
    """

    before: V | None
    after: V | None

    @property
    def kind(self) -> Literal["insert", "update", "delete"]:
        """``"insert"``, ``"update"`` or ``"delete"``."""
        if self.before is None:
            return "insert"
        return "delete" if self.after is None else "update"
