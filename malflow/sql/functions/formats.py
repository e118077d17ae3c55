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

_NUMBERS = {
    "y": "it.year",
    "u": "it.year",
    "Q": "(it.month + 2) // 3",
    "M": "it.month",
    "d": "it.day",
    "D": "it.timetuple().tm_yday",
    "H": "it.hour",
    "k": "it.hour or 24",
    "h": "it.hour % 12 or 12",
    "K": "it.hour % 12",
    "m": "it.minute",
    "s": "it.second",
}
"""Letters of numbers, with their source; a number has as many digits as the letter is repeated."""

_WORDS = {"M": (_MONTHS, "it.month - 1"), "E": (_DAYS, "it.weekday()"), "a": (_NOON, "it.hour // 12")}
"""Letters of words: three letters of the word, or all if the letter stands four times."""

_CLOCK = frozenset("HkhKmsSa")
"""Letters of the time of day."""

_PIECE = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z']+|'")
_SHORT, _LONG, _TWO_DIGITS = 3, 4, 2
_FINEST = 9
_CENTURY = 2_000
"""What a year of two digits is added to, as in Java."""


class _Format(NamedTuple):
    """A pattern: what writes an instant, whether its date is enough, and what reads the texts of its letters."""

    write: Callable[[datetime], str]
    is_of_date: bool
    reader: re.Pattern[str]
    letters: list[str]


@lru_cache(1_024)  # patterns are literals
def instant_format(pattern: str) -> _Format:
    """Return a pattern, ready to be used.

    Raises:
        ValueError: if it has a letter without a meaning here.
    """
    source, regexp = "", ""
    letters: list[str] = []
    for match in _PIECE.finditer(pattern):
        text, letter = match[0], match[1]
        if letter:
            name, written, read = _word(letter, len(text)) or _number(pattern, letter, len(text))
            letters.append(name)
            source, regexp = f"{source}{{{written}}}", f"{regexp}({read})"
            continue
        if text == "'":
            raise ValueError(f"{pattern!r} has a quote that is not closed")
        plain = text[1:-1].replace("''", "'") or "'" if text[0] == "'" else text
        source += plain.replace("{", "{{").replace("}", "}}")
        regexp += re.escape(plain)
    names = {f"{letter}{count}": _shown(letter, count) for letter in _WORDS for count in range(1, _LONG + 1)}
    write = eval(f"lambda it: f{source!r}", names)  # noqa: S307 - of the letters above, and of quoted text
    return _Format(write, _CLOCK.isdisjoint("".join(letters)), re.compile(regexp, re.ASCII), letters)


def _shown(letter: str, count: int) -> list[str]:
    return [it if count == _LONG else it[:_SHORT] for it in _WORDS[letter][0]]


def _word(letter: str, count: int) -> tuple[str, str, str] | None:
    """Return the name of a letter, its source, and the regular expression of what it reads; None for a number."""
    if letter not in _WORDS or count > _LONG or (letter in _NUMBERS and count < _SHORT):
        return None
    return letter * 2, f"{letter}{count}[{_WORDS[letter][1]}]", "|".join(_shown(letter, count))


def _number(pattern: str, letter: str, count: int) -> tuple[str, str, str]:
    if letter == "S" and count <= _FINEST:
        return letter, f"it.microsecond * 1000 // {10 ** (_FINEST - count)}:0{count}", rf"\d{{{count}}}"
    if letter not in _NUMBERS or count > _LONG:
        letters = "".join(dict.fromkeys((*_NUMBERS, "S", *_WORDS)))
        raise ValueError(
            f"{pattern!r} has {letter * count}, which has no meaning here; there are {letters}, and 'text'"
        )
    is_year = letter in "yu"
    cut = " % 100" if is_year and count == _TWO_DIGITS else ""
    read = rf"\d{{{count}}}" if count > 1 else r"\d{4}" if is_year else r"\d{1,3}"
    return letter, f"{_NUMBERS[letter]}{cut}:0{count}", read


def instant_formatted(units: int, digits: int, pattern: str) -> str:
    """Return an instant as a pattern writes it."""
    form = instant_format(pattern)
    return _of_date(days_of(units, digits), pattern) if form.is_of_date else form.write(moment(units, digits))


@lru_cache(1_024)  # the rows of a stream are of a few days
def _of_date(days: int, pattern: str) -> str:
    return instant_format(pattern).write(moment(days * _DAY, 0))


_DAY = 86_400


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
