"""Rows of queries on standard output: as a table, as JSON lines or as CSV."""

from __future__ import annotations

import csv
import io
import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from malflow.cli.output.texts import aligned
from malflow.sinks.stdout import StdOutSink
from malflow.sql.bind.scope import Field
from malflow.sql.build.chains import leaves
from malflow.sql.build.doors import Exit
from malflow.sql.types import NUMBERS, STRING
from malflow.words import cut, printable

__all__ = ["FORMS", "Form", "ShownRows"]

_WIDEST = 80
"""The most characters of a cell in a table, a line of a terminal; JSON and CSV have all of it."""


class Form:
    """A form of rows.

    Args:
        fields: the columns.

    Attributes:
        fields: the columns; rows may have more after them.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = fields

    @abstractmethod
    def text(self, rows: Sequence[tuple[Any, ...]]) -> str:
        """Return the text of rows."""

    def ended(self) -> str:
        """Return the text after all rows."""
        return ""


class _Json(Form):
    def __init__(self, fields: Sequence[Field]) -> None:
        super().__init__(fields)
        self._exit = leaves(Exit(fields, dict, as_json=True))

    def text(self, rows: Sequence[tuple[Any, ...]]) -> str:
        return "".join(f"{_escaped(json.dumps(it, ensure_ascii=False))}\n" for it in self._exit(rows))


class _Texts(Form):
    """A form of texts, with the names of the columns before the rows."""

    def __init__(self, fields: Sequence[Field]) -> None:
        super().__init__(fields)
        self._is_begun = False
        self._decimals = [at for at, it in enumerate(fields) if it.type.kind == "DECIMAL"]
        texts = [replace(it, type=STRING) if it.type.kind == "DECIMAL" else it for it in fields]
        self._exit = leaves(Exit(texts, tuple, as_json=True))

    def text(self, rows: Sequence[tuple[Any, ...]]) -> str:
        cells = [[*map(_text, it)] for it in self._exit([*map(self._with_digits, rows)] if self._decimals else rows)]
        written = self.written(cells, is_first=not self._is_begun)
        self._is_begun = True
        return written

    def _with_digits(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a row with texts of its decimals, with all digits of their type."""
        cells = [*row]
        for at in self._decimals:
            cells[at] = None if cells[at] is None else format(cells[at], "f")
        return tuple(cells)

    def ended(self) -> str:
        return "" if self._is_begun else self.text([])

    @abstractmethod
    def written(self, rows: Sequence[Sequence[str | None]], *, is_first: bool) -> str:
        """Return the text of rows of cells, after the names of the columns if they are the first ones."""


class _Csv(_Texts):
    def written(self, rows: Sequence[Sequence[str | None]], *, is_first: bool) -> str:
        made = io.StringIO()
        writer = csv.writer(made, lineterminator="\n")
        writer.writerows([[it.name for it in self.fields]] if is_first else [])
        writer.writerows(rows)
        return made.getvalue()


class _Table(_Texts):
    """Columns below each other; as wide as the widest cell of the rows so far."""

    def __init__(self, fields: Sequence[Field]) -> None:
        super().__init__(fields)
        mark = {False: "", True: ">"}
        names = [printable(it.name) for it in fields]
        self._heads = [f"{mark[it.type.kind in NUMBERS]}{name}" for it, name in zip(fields, names, strict=True)]
        self._widths = [*map(len, names)]

    def written(self, rows: Sequence[Sequence[str | None]], *, is_first: bool) -> str:
        cells = [["NULL" if it is None else cut(printable(it), _WIDEST) for it in row] for row in rows]
        self._widths = [max(map(len, it)) for it in zip(*([" " * it for it in self._widths], *cells), strict=True)]
        rule = ["-" * it for it in self._widths]
        lines = aligned(self._heads, [rule, *cells])
        return "".join(f"{it}\n" for it in (lines if is_first else lines[2:]))


def _escaped(text: str) -> str:
    """Return a text of JSON with characters that a terminal would obey, or that end a line, as JSON escapes them."""
    return text if text.isprintable() else "".join(it if it.isprintable() else json.dumps(it)[1:-1] for it in text)


def _text(value: Any) -> str | None:
    """Return the text of a value of JSON; None for NULL."""
    if value is None or isinstance(value, str):
        return value
    return str(value).upper() if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


FORMS: dict[str, Callable[[Sequence[Field]], Form]] = {"table": _Table, "json": _Json, "csv": _Csv}
"""The forms of rows, by name."""


class ShownRows(StdOutSink):
    """Writes rows to standard output when they come, or in their order at the end.

    Args:
        form: the form.
        order: returns the key of a row by which it is sorted; None to write rows as they come.
        skipped: how many rows are left out at the beginning.
        most: how many rows are written; None for all.
        enough: called when no more rows are wanted.

    Attributes:
        count: how many rows were written.
    """

    def __init__(
        self,
        form: Form,
        order: Callable[[Any], Any] | None,
        skipped: int,
        most: int | None,
        enough: Callable[[], object],
    ) -> None:
        super().__init__()
        self._form = form
        self._order = order
        self._left_out = skipped
        self._most = most
        self._enough = enough
        self._rows: list[Any] = []
        self._since = 0.0
        self.count = 0

    def sink_batch(self, _keys: Sequence[Any], values: Sequence[Any], _timestamps: Sequence[Any]) -> None:
        """Take a batch of rows."""
        self._rows += values

    def flush(self) -> None:
        """Write the rows of the tick."""
        if self._order is None:
            if not self._is_gathering():
                self._write_rows()
        elif self._most is not None and len(self._rows) > 2 * (most := self._left_out + self._most) + _FEW:
            self._rows = sorted(self._rows, key=self._order)[:most]
        super().flush()

    def _is_gathering(self) -> bool:
        """Whether to wait for more of the first rows; the columns of a table are as wide as these."""
        if self.count or not self._rows:
            return False
        now = monotonic()
        self._since = self._since or now
        enough = _SCREEN if self._most is None else min(_SCREEN, self._left_out + self._most)
        return len(self._rows) < enough and now - self._since < _GATHERING

    def finish(self) -> None:
        """Write the rows that wait for their order, and the end."""
        if self._order is not None:
            self._rows.sort(key=self._order)
        self._write_rows()
        self._write(self._form.ended())
        super().flush()

    def _write_rows(self) -> None:
        rows, self._rows = self._rows, []
        left_out = min(self._left_out, len(rows))
        self._left_out -= left_out
        rows = rows[left_out : None if self._most is None else left_out + self._most - self.count]
        if rows:
            width = len(self._form.fields)
            rows = [it[:width] for it in rows] if len(rows[0]) > width else rows
            self._write(self._form.text(rows))
            self.count += len(rows)
        if self.count == self._most:
            self._enough()


_FEW = 1000
"""Rows that wait for their order beside those that are wanted: fewer sort too often."""

_SCREEN = 50
"""Rows that determine the widths of columns: those of a screen."""

_GATHERING = 0.1
"""Seconds to wait for them: a delay that nobody sees."""
