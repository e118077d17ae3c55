"""Patterns of dates and times, such as `yyyy-MM-dd HH:mm:ss`: those letters of Java that people use."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from malflow.sql.functions.times import EPOCH, days_of, instant, instant_of_text, moment

__all__ = ["instant_format", "instant_formatted", "instant_parsed", "parsed_date", "parsed_instant"]

_DAYS, _MONTHS = (
    names.split()
    for names in (
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
        "January February March April May June July August September October November December",
    )
)
_NOON = ["AM", "PM"]

_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "y": lambda it: it.year,
    "u": lambda it: it.year,
    "Q": lambda it: (it.month + 2) // 3,
    "M": lambda it: it.month,
    "d": lambda it: it.day,
    "D": lambda it: it.timetuple().tm_yday,
    "H": lambda it: it.hour,
    "k": lambda it: it.hour or 24,
    "h": lambda it: it.hour % 12 or 12,
    "K": lambda it: it.hour % 12,
    "m": lambda it: it.minute,
    "s": lambda it: it.second,
}
"""Letters of numbers; a number has as many digits as the letter is repeated."""

_WORDS: dict[str, tuple[list[str], Callable[[datetime], int]]] = {
    "M": (_MONTHS, lambda it: it.month - 1),
    "E": (_DAYS, lambda it: it.weekday()),
    "a": (_NOON, lambda it: it.hour // 12),
}
"""Letters of words: three letters of the word, or all if the letter stands four times."""

_PIECE = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z']+|'")
_SHORT, _LONG, _TWO_DIGITS = 3, 4, 2
_CENTURY = 2_000
"""What a year of two digits is added to, as in Java."""


class _Format(NamedTuple):
    """A pattern: what writes each piece, and the regular expression with the letters of its groups."""

    writers: list[Callable[[datetime], str]]
    reader: re.Pattern[str]
    letters: list[str]


@lru_cache(1_024)  # patterns are literals
def instant_format(pattern: str) -> _Format:
    """Return a pattern, ready to be used.

    Raises:
        ValueError: if it has a letter without a meaning here.
    """
    found = _Format([], re.compile(""), [])
    regexp = ""
    for match in _PIECE.finditer(pattern):
        text, letter = match[0], match[1]
        if letter:
            regexp += f"({_lettered(pattern, letter, len(text), found)})"
            continue
        if text == "'":
            raise ValueError(f"{pattern!r} has a quote that is not closed")
        plain = text[1:-1].replace("''", "'") or "'" if text[0] == "'" else text
        found.writers.append(_plain(plain))
        regexp += re.escape(plain)
    return found._replace(reader=re.compile(regexp, re.ASCII))


def _plain(text: str) -> Callable[[datetime], str]:
    return lambda _: text


def _lettered(pattern: str, letter: str, count: int, found: _Format) -> str:
    """Add the writer of a letter; return the regular expression of what it reads."""
    is_word = letter in _WORDS and (letter not in _NUMBERS or count >= _SHORT)
    if is_word and count <= _LONG:
        words, at = _WORDS[letter]
        shown = [it if count == _LONG else it[:_SHORT] for it in words]
        found.writers.append(lambda it: shown[at(it)])
        found.letters.append(f"{letter}{letter}")
        return "|".join(shown)
    found.letters.append(letter)
    if letter == "S" and count <= _FINEST:
        found.writers.append(lambda it: f"{it.microsecond:06}000"[:count])
        return rf"\d{{{count}}}"
    if letter not in _NUMBERS or count > _LONG:
        letters = "".join(dict.fromkeys((*_NUMBERS, "S", *_WORDS)))
        raise ValueError(
            f"{pattern!r} has {letter * count}, which has no meaning here; there are {letters}, and 'text'"
        )
    number = _NUMBERS[letter]
    if letter in "yu" and count == _TWO_DIGITS:
        found.writers.append(lambda it: f"{it.year % 100:02}")
    else:
        found.writers.append(lambda it: f"{number(it):0{count}}")
    return rf"\d{{{count}}}" if count > 1 else r"\d{4}" if letter in "yu" else r"\d{1,3}"


_FINEST = 9


def instant_formatted(units: int, digits: int, pattern: str) -> str:
    """Return an instant as a pattern writes it."""
    it = moment(units, digits)
    return "".join([write(it) for write in instant_format(pattern).writers])


def instant_parsed(text: str, digits: int, pattern: str) -> int:
    """Return the instant of a text that a pattern describes; what it leaves out is as on 1 January 1970, 0:00.

    Raises:
        ValueError: if the text does not fit.
    """
    form = instant_format(pattern)
    match = form.reader.fullmatch(text)
    if match is None:
        return instant_of_text(text, digits)
    given = dict(zip(form.letters, match.groups(), strict=True))
    written = given.get("y") or given.get("u") or str(EPOCH.year)
    year = int(written) + (_CENTURY if len(written) == _TWO_DIGITS else 0)
    month = _index(_MONTHS, given["MM"]) + 1 if "MM" in given else int(given.get("M", 1))
    clock = int(given["H"]) if "H" in given else int(given["k"]) % 24 if "k" in given else _from_noon(given)
    is_midnight = clock == _HOURS
    minute, second = int(given.get("m", 0)), int(given.get("s", 0))
    found = datetime(year, month, int(given.get("d", 1)), clock % 24 if is_midnight else clock, minute, second)  # noqa: DTZ001 - an instant without a zone
    fraction = timedelta(microseconds=int(given.get("S", "0")[:6].ljust(6, "0")))
    days = timedelta(days=int(given.get("D", 1)) - 1 + is_midnight)
    return instant(found + days + fraction, digits)


_HOURS = 24
"""The hour that ends a day."""


def _from_noon(given: dict[str, str]) -> int:
    """Return the hour of two halves of a day."""
    hour = int(given.get("h") or given.get("K") or 0)
    if hour > _HOURS // 2:
        raise ValueError(f"{hour} is not an hour of a half day")
    return hour % (_HOURS // 2) + _HOURS // 2 * (_index(_NOON, given["aa"]) if "aa" in given else 0)


def _index(words: list[str], text: str) -> int:
    return next(at for at, it in enumerate(words) if it.startswith(text))


def parsed_instant(text: str, digits: int, pattern: str) -> int | None:
    """Return the instant of a text; None if it is not one."""
    try:
        return instant_parsed(text, digits, pattern)
    except (ValueError, OverflowError):
        return None


def parsed_date(text: str, pattern: str) -> int | None:
    """Return the date of a text; None if it is not one."""
    found = parsed_instant(text, 0, pattern)
    return None if found is None else days_of(found, 0)
