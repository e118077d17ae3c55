"""Numbers, ages and sizes as people read them."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime

__all__ = ["age", "as_options", "bytes_text", "duration"]

_KILO = 1000
"""The factor between units: kB and MB are powers of 1,000, not of 1,024."""

_RENAMED = re.compile(r"renamed=\{'([^']*)': '([^']*)'\}")
_DROPPED = re.compile(r"allow_dropped_state=\['([^']*)'\]")
_WORD = re.compile(r"\b(recovery|sinks)='(\w+)'")
_UNITS = ("kB", "MB", "GB", "TB", "PB")
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def duration(seconds: float) -> str:
    """Return a duration in its largest unit.

    >>> duration(0.004), duration(4.2), duration(150), duration(7200), duration(200_000)
    ('4 ms', '4 s', '2 min', '2 h', '2 d')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for length, unit in _SPANS:
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago a moment was.

    >>> age(datetime(2026, 3, 28, 12, 0, tzinfo=UTC), datetime(2026, 3, 28, 12, 5, tzinfo=UTC)), age(None)
    ('5 min old', 'of an unknown time')
    """
    if moment is None:
        return "of an unknown time"
    return f"{duration(max(0.0, ((now or datetime.now(UTC)) - moment).total_seconds()))} old"


def bytes_text(count: int) -> str:
    """Return a number of bytes.

    >>> bytes_text(84), bytes_text(84_000), bytes_text(3_200_000)
    ('84 B', '84 kB', '3.2 MB')
    """
    if count < _KILO:
        return f"{count} B"
    power = next((it for it, _ in enumerate(_UNITS, 1) if count < _KILO ** (it + 1)), len(_UNITS))
    return f"{count / _KILO**power:.{0 if power == 1 else 1}f} {_UNITS[power - 1]}"


def as_options(text: str) -> str:
    """Return a text of an error in which the arguments of a runtime are the options of a command.

    >>> as_options("pass renamed={'a': 'b'}, or allow_dropped_state=['a b'], or choose another job=")
    "pass --rename a=b, or --drop 'a b', or choose another --job"
    """
    text = _RENAMED.sub(lambda it: f"--rename {shlex.quote(f'{it[1]}={_new(it[2])}')}", text)
    text = _DROPPED.sub(lambda it: f"--drop {shlex.quote(it[1])}", text)
    return _WORD.sub(r"--\1 \2", text).replace("another job=", "another --job")


def _new(name: str) -> str:
    return "NEW" if name == "its new name" else name
