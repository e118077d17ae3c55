"""Tables as HTML, with every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from malflow.drawing.text import fitted, markup

__all__ = ["table"]

_LONGEST = 300
"""The most characters of a cell: a few lines of a column. More would make a row fill the page."""


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], caption: str | None = None) -> str:
    """Return an HTML table; the cells are texts, numbers with thousands apart, or empty for None.

    >>> table(["operator", "records"], [["<b>", 12000]])
    '<table><thead><tr><th>operator</th><th>records</th></tr></thead><tbody><tr><td>&lt;b&gt;</td><td>12,000</td></tr></tbody></table>'
    """
    title = "" if caption is None else f"<caption>{_text(caption)}</caption>"
    head = "".join(f"<th>{_text(it)}</th>" for it in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(cell: object) -> str:
    if cell is None:
        return ""
    is_number = isinstance(cell, int) and not isinstance(cell, bool)
    return markup(fitted(f"{cell:,}" if is_number else str(cell), _LONGEST))
