"""The small words of messages: names that resemble, short and safe texts, counts and instants."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final, overload

__all__ = [
    "class_name",
    "cut",
    "did_you_mean",
    "error_line",
    "error_text",
    "iso",
    "listed",
    "one_line",
    "plural",
    "printable",
    "qualified_name",
    "quoted",
    "resembling",
    "short_repr",
    "value_text",
]

_ALIKE: Final = 0.6
"""How alike two names are, from 0 to 1, that may be meant for each other: the default of `difflib`."""

_LONGEST_NAME: Final = 200
"""Characters of a name that are compared: the time grows with them, and a name may come from outside."""

_MOST_NAMES: Final = 20
"""Names in a message: more than that nobody reads."""

_LONGEST_REPR: Final = 200
"""Characters of a repr: some lines of a terminal."""

_LONGEST_LINE: Final = 300
"""Characters of a line in a message: some lines of a terminal, as for a repr and its sentence."""

_LONGEST_QUOTED: Final = 80
"""Characters of a name in a sentence: the sentence should stay readable."""

_USERINFO = re.compile(r"(://)[^/?#\s\"'<>]{0,512}@")


def resembling(name: object, names: Iterable[object], most: int = 1, *, alike: float = _ALIKE) -> list[str]:
    """Return the names that resemble another one, the most similar first; only texts resemble each other.

    >>> resembling("cuont", ["count", "out"]), resembling(7, ["count"])
    (['count'], [])
    """
    if not isinstance(name, str):
        return []
    return get_close_matches(name[:_LONGEST_NAME], [it for it in names if isinstance(it, str)], most, alike)


def did_you_mean(
    name: object,
    names: Iterable[str],
    *,
    else_: str | None = None,
    write: Callable[[str], str] = repr,
) -> str:
    """Return the end of a message about an unknown name: the name that it resembles, or all names.

    Args:
        name: the unknown name (may not be text).
        names: the known names.
        else_: what to say if none resembles it, or an empty text; None for the known names.
        write: how to write the name; in quotes by default.

    >>> did_you_mean("cuont", ["count", "out"]), did_you_mean("x", ["count", "out"])
    ("; did you mean 'count'?", "; there are 'count', 'out'")
    >>> did_you_mean("x", ["count"], else_="create it first"), did_you_mean("x", ["count"], else_="")
    ('; create it first', '')
    """
    known = list(names)
    near = resembling(name, known)
    if near:
        return f"; did you mean {write(near[0])}?"
    if else_ is None and known:
        else_ = f"there {'is' if len(known) == 1 else 'are'} {listed(known, write=write)}"
    return f"; {else_}" if else_ else ""


def listed(names: Iterable[Any], most: int = _MOST_NAMES, *, write: Callable[[Any], str] = repr) -> str:
    """Return names for a message, with the number of those left out; "none" if there are none.

    >>> listed(["a", "b"]), listed(["a", "b", "c"], 2), listed([])
    ("'a', 'b'", "'a', 'b' and 1 more", 'none')
    """
    known = list(names)
    more = f" and {len(known) - most:,} more" if len(known) > most else ""
    return f"{', '.join(map(write, known[:most])) or 'none'}{more}"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun in the right form.

    >>> plural(1, "record"), plural(2000, "record"), plural(2, "query"), plural(3, "match")
    ('1 record', '2,000 records', '2 queries', '3 matches')
    """
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def cut(text: str, limit: int) -> str:
    """Return the beginning of a text, with dots in place of the rest.

    >>> cut("abc", 3), cut("abcdef", 3)
    ('abc', 'abc...')
    """
    return text if len(text) <= limit else f"{text[:limit]}..."


def printable(text: str) -> str:
    r"""Return a text with control characters, marks of direction and the like as Python escapes them.

    >>> print(printable("red: \x1b[31m\n"))
    red: \x1b[31m\n
    """
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode("ascii") for it in text)


def one_line(text: str, limit: int = _LONGEST_LINE) -> str:
    r"""Return a text in one line of printable characters, cut if it is long.

    >>> one_line("a\nb", 9), one_line("abcdef", 3)
    ('a\\nb', 'abc...')
    """
    return cut(printable(text[: limit + 1]), limit)


def quoted(name: str) -> str:
    """Return a name in quotes, cut if it is long.

    >>> quoted("count")
    "'count'"
    """
    return f"'{one_line(name, _LONGEST_QUOTED)}'"


class _Repr(reprlib.Repr):
    """Shortens reprs, and removes user and password from URLs, since URLs of files are names of parts and keys."""

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(_USERINFO.sub(r"\1***@", x) if "://" in x else x, level)


_short = _Repr()
_short.maxstring = _short.maxother = _LONGEST_REPR
# The most entries of a dict in a repr: `reprlib` shows 4, too few for a record's fields; double makes a message hard
# to read.
_short.maxdict = 20


def short_repr(thing: object) -> str:
    """Return a short repr of a user's object for an error message; never raises."""
    try:
        return _short.repr(thing)
    except Exception as error:  # noqa: BLE001 - a broken __repr__ must not hide the error being reported
        return f"<{qualified_name(thing)} whose repr raised {class_name(error)}>"


def value_text(value: object) -> str:
    """Return a value of the user, such as a part or a timestamp, as text in a sentence; never raises.

    >>> value_text(datetime(2026, 3, 28)), value_text("a")
    ('2026-03-28 00:00:00', "'a'")
    """
    return str(value) if type(value) in (datetime, timedelta) else one_line(short_repr(value))


def error_text(error: BaseException) -> str:
    """Return the text of a user's exception, even if its ``__str__`` raises."""
    try:
        return str(error)
    except Exception as worse:  # noqa: BLE001 - a broken __str__ must not hide the error being reported
        return f"<its str raised {class_name(worse)}>"


def error_line(error: BaseException) -> str:
    """Return the class and the text of an exception, as the last line of a traceback does; never raises.

    >>> error_line(KeyError("town")), error_line(TimeoutError())
    ("KeyError: 'town'", 'TimeoutError')
    """
    text = error_text(error)
    return f"{class_name(error)}: {text}" if text else class_name(error)


def class_name(thing: object) -> str:
    """Return the name of a thing's class, even if the class's own class refuses it."""
    return str(type.__dict__["__name__"].__get__(type(thing)))


def qualified_name(thing: object) -> str:
    """Return the qualified name of a thing's class, even if the class's own class refuses it."""
    return str(type.__dict__["__qualname__"].__get__(type(thing)))


@overload
def iso(moment: datetime) -> str: ...


@overload
def iso(moment: datetime | None) -> str | None: ...


def iso(moment: datetime | None) -> str | None:
    """Return an instant as text in UTC, for JSON that leaves the process; None for none.

    >>> iso(datetime(2026, 3, 28, 12, 0, 0, 5000, tzinfo=UTC))
    '2026-03-28T12:00:00.005000Z'
    """
    if moment is None:
        return None
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
