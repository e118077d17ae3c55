"""The requests to a run, from its control socket and from its page, and their checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from malflow.drawing import Format
from malflow.words import did_you_mean, short_repr

__all__ = [
    "ACTS",
    "LONGEST_WAIT",
    "MOST_LISTED",
    "MOST_WAITING",
    "QUESTIONS",
    "WAITING",
    "Ask",
    "BadRequest",
    "asked",
    "asked_in_texts",
    "parsed",
]

LONGEST_WAIT: Final = 600.0
"""The longest timeout of a request, in seconds."""

ACTS: Final = frozenset({"snapshot", "rescale", "stop", "replay", "discard"})
"""The requests that steer the run."""

WAITING: Final = frozenset({"why", "time", "letters", "state", "snapshot", "rescale", "replay", "discard"})
"""The requests that the run answers after its tick."""

MOST_WAITING: Final = 8
"""The most of them to wait for the run at once, on the control socket and again on the page. Fewer refuse commands or
viewers side by side, more let clients queue up questions at a slow run."""


MOST_LISTED = 1000
"""The most letters or keys in an answer."""


class BadRequest(ValueError):
    """A request that is not understood; the text is for the one who sent it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request.

    Attributes:
        do: the word.
        given: its arguments.
    """

    do: str
    given: Mapping[str, Any]

    @property
    def timeout(self) -> float:
        """How many seconds to wait for the run."""
        return float(self.given.get("timeout", 30.0))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _is_positive(value: Any) -> bool:
    return _is_count(value) and value > 0


def _is_limit(value: Any) -> bool:
    return _is_positive(value) and value <= MOST_LISTED


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= LONGEST_WAIT


def _is_format(value: Any) -> bool:
    return value in _FORMATS


def _is_width(value: Any) -> bool:
    return _is_positive(value) and value <= _WIDEST


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _read_flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of an argument.

    Attributes:
        is_right: whether a value has this form.
        words: a description of the form, for messages.
        read: converts a text from a query to a value.
    """

    is_right: Callable[[Any], bool]
    words: str
    read: Callable[[str], Any] = str


_WIDEST: Final = 1000
"""The widest drawing in columns, wider than any terminal. The limit keeps requests from asking for a text of any
size."""

_FORMATS: Final = get_args(Format)
_TIMEOUT: Final = {"timeout": _Form(_is_time, f"seconds from 0 to {LONGEST_WAIT:g}", float)}
_LIMIT: Final = {"limit": _Form(_is_limit, f"a number from 1 to {MOST_LISTED:,}", int)}
_OPERATOR: Final = {"operator": _Form(_is_text, "the name of an operator")}
_LETTERS: Final = {**_OPERATOR, "ids": _Form(_are_texts, "a list of ids of letters", lambda text: [text]), **_TIMEOUT}
_WORDS: Final[Mapping[str, Mapping[str, _Form]]] = {
    "progress": {},
    "graph": {},
    "drawing": {
        "format": _Form(_is_format, f"one of {', '.join(_FORMATS)}"),
        "stages": _Form(_is_flag, "true or false", _read_flag),
        "width": _Form(_is_width, f"a number of columns up to {_WIDEST}", int),
    },
    "history": {"last": _Form(_is_positive, "a number of samples", int)},
    "events": {"after": _Form(_is_count, "the number of an event", int)},
    "snapshots": {},
    "why": {**_OPERATOR, **_TIMEOUT},
    "time": _TIMEOUT,
    "letters": {**_OPERATOR, "id": _Form(_is_text, "the id of a letter"), **_LIMIT, **_TIMEOUT},
    "state": {**_OPERATOR, "key": _Form(_is_text, "a key"), **_LIMIT, **_TIMEOUT},
    "snapshot": _TIMEOUT,
    "rescale": {"parallelism": _Form(_is_positive, "a number of workers", int), **_TIMEOUT},
    "stop": {},
    "replay": _LETTERS,
    "discard": _LETTERS,
    "sample": {
        **_OPERATOR,
        "after": _Form(_is_count, "the number of a record", int),
    },
}
QUESTIONS: Final = frozenset(_WORDS) - ACTS
"""The requests that change nothing."""

_NEEDED = {"rescale": ("parallelism",), **dict.fromkeys(("state", "replay", "discard", "sample"), ("operator",))}


def parsed(line: bytes) -> Ask:
    """Return the request in a line of JSON.

    Raises:
        BadRequest: if it is not one.
    """
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request is not a line of JSON: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise BadRequest('the request is not an object such as {"malflow": 1, "do": "progress"}')
    version, do = content.pop("malflow", None), content.pop("do", None)
    if version != 1 or type(version) is not int:
        raise BadRequest(f'the request has "malflow": {short_repr(version)}; this run understands 1')
    if not isinstance(do, str) or do not in _WORDS:
        raise BadRequest(f'the request has "do": {short_repr(do)}{did_you_mean(do, _WORDS)}')
    return asked(do, content)


def asked(do: str, given: Mapping[str, Any]) -> Ask:
    """Return a request with a known word.

    Raises:
        BadRequest: if an argument is missing, unknown, or has a wrong form.
    """
    for name, value in given.items():
        form = _form(do, name)
        if not form.is_right(value):
            raise BadRequest(f"{name} of {do} must be {form.words}; got {short_repr(value)}")
    for name in _NEEDED.get(do, ()):
        if name not in given:
            raise BadRequest(f"{do} needs {name}")
    return Ask(do, dict(given))


def asked_in_texts(do: str, given: Mapping[str, str]) -> Ask:
    """Return a request with a known word and texts as arguments, as in the query of a URL.

    Raises:
        BadRequest: if an argument is missing, unknown, or has a wrong form.
    """
    read = {}
    for name, text in given.items():
        form = _form(do, name)
        try:
            read[name] = form.read(text)
        except ValueError:
            raise BadRequest(f"{name} of {do} must be {form.words}; got {short_repr(text)}") from None
    return asked(do, read)


def _form(do: str, name: str) -> _Form:
    known = _WORDS[do]
    if name not in known:
        raise BadRequest(f"{do} has no argument {short_repr(name)}{did_you_mean(name, known)}")
    return known[name]
