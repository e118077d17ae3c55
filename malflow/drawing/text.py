"""Names and other texts of users, made safe to show: printable, short, and escaped."""

from __future__ import annotations

from unicodedata import category, east_asian_width

from malflow.words import printable

__all__ = ["ending", "fitted", "markup", "short_location", "width"]

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
