"""Texts of users made safe to show, in pictures and in tables of HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from unicodedata import category, east_asian_width

from malflow.words import printable

__all__ = [
    "ending",
    "fitted",
    "markup",
    "short_location",
    "table",
    "width",
]

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def fitted(text: str, limit: int) -> str:
    r"""Return a text in one line of printable characters, up to a width; an ellipsis replaces the rest.

    >>> fitted("a\x1b[1m", 20), fitted("abcdef", 4)
    ('a\\x1b[1m', 'abc…')
    """
    shown = printable(text[: 2 * limit + 1])
    return shown if len(text) <= 2 * limit and width(shown) <= limit else _beginning(shown, limit - 1) + "…"


def ending(text: str, limit: int) -> str:
    """Return the end of a text as `fitted` returns the beginning.

    >>> ending("flight_delays.py:78", 12)
    '…elays.py:78'
    """
    shown = fitted(text[-2 * limit :], 12 * limit)
    return shown if len(text) <= 2 * limit and width(shown) <= limit else "…" + _beginning(shown[::-1], limit - 1)[::-1]


def _beginning(text: str, limit: int) -> str:
    """Return the beginning of a text, up to a width."""
    for at, character in enumerate(text):
        limit -= width(character)
        if limit < 0:
            return text[:at]
    return text


def width(text: str) -> int:
    """Return how many columns of a terminal a printable text fills: two for an ideograph, none for an accent.

    >>> width("naïve"), width("名")
    (5, 2)
    """
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(it) in "WF" else category(it) not in ("Mn", "Me") for it in text)


def markup(text: str) -> str:
    """Return a text for HTML and XML, in elements as in attributes.

    >>> markup("a<'b'")
    'a&lt;&#39;b&#39;'
    """
    return text.translate(_MARKUP)


def short_location(location: str) -> str:
    """Return the file and line of a location, without the folders.

    >>> short_location("/home/ann/flow.py:14")
    'flow.py:14'
    """
    return location.replace("\\", "/").rpartition("/")[2]


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
