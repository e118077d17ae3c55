"""The delimiter and the quotes of CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from malflow.errors import GraphError

__all__ = ["Dialect", "fault_in_fields"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The delimiter and the quotes of a file.

    Attributes:
        asked_by: the class that has these options, for errors.
        delimiter: the character between fields.
        quotechar: the character around fields; None for no quotes.

    Raises:
        GraphError: if they are not two different characters, or a line break.
    """

    asked_by: str
    delimiter: str
    quotechar: str | None

    def __post_init__(self) -> None:
        given = f"delimiter={self.delimiter!r}, quotechar={self.quotechar!r}"
        act = "read" if self.asked_by.endswith("Source") else "write"
        if self.delimiter == self.quotechar or self.delimiter in ("\r", "\n"):
            raise GraphError(
                f"{self.asked_by} cannot {act} with {given}: a delimiter is neither the quote nor a line break"
            )
        try:
            self.reader(iter(()))
        except (TypeError, ValueError) as error:
            raise GraphError(f"{self.asked_by} cannot {act} with {given}: {error}") from error

    def reader(self, lines: Iterator[str]) -> Any:
        """Return a reader of rows."""
        if self.quotechar is None:
            return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE, strict=True)
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quotechar, strict=True)


def fault_in_fields(names: Sequence[str]) -> str | None:
    """Return the fault in the names of fields; None if they have none."""
    if not all(name.strip() for name in names):
        return "an empty field name"
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        return f"the field name {twice[0]!r} more than once"
    return None if names else "no field names"
