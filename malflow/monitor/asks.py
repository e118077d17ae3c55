"""The requests that a control socket understands, with their checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from malflow.errors import short_repr

__all__ = ["LONGEST_WAIT", "WAITING", "Ask", "BadRequest", "parsed"]

LONGEST_WAIT: Final = 600.0
"""The longest timeout of a request, in seconds."""

WAITING: Final = frozenset({"why", "time", "snapshot", "rescale", "replay", "discard"})
"""The requests that wait for the run: they are answered after its tick."""

_LONGEST_NAME = 100
"""The longest text that is compared with the known ones, as that takes time."""

_Check = Callable[[Any], bool]


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


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= LONGEST_WAIT


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_TIMEOUT: Mapping[str, tuple[_Check, str]] = {"timeout": (_is_time, f"seconds from 0 to {LONGEST_WAIT:g}")}
_LETTERS: Mapping[str, tuple[_Check, str]] = {
    "operator": (_is_text, "the name of an operator"),
    "ids": (_are_texts, "a list of ids of letters"),
    **_TIMEOUT,
}
_WORDS: Mapping[str, Mapping[str, tuple[_Check, str]]] = {
    "progress": {},
    "history": {},
    "events": {"after": (_is_count, "the number of an event")},
    "why": {"operator": (_is_text, "the name of an operator"), **_TIMEOUT},
    "time": _TIMEOUT,
    "snapshot": _TIMEOUT,
    "rescale": {"parallelism": (_is_positive, "a number of workers"), **_TIMEOUT},
    "stop": {},
    "replay": _LETTERS,
    "discard": _LETTERS,
}
_NEEDED = {"rescale": ("parallelism",), "replay": ("operator",), "discard": ("operator",)}


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
        raise BadRequest(f'the request has "do": {short_repr(do)}{_near(do, [*_WORDS])}')
    return Ask(do, _checked(do, content))


def _checked(do: str, given: dict[str, Any]) -> dict[str, Any]:
    known = _WORDS[do]
    for name, value in given.items():
        if name not in known:
            raise BadRequest(f"{do} has no argument {short_repr(name)}{_near(name, [*known])}")
        is_right, form = known[name]
        if not is_right(value):
            raise BadRequest(f"{name} of {do} must be {form}; got {short_repr(value)}")
    for name in _NEEDED.get(do, ()):
        if name not in given:
            raise BadRequest(f"{do} needs {name}")
    return given


def _near(name: object, names: list[str]) -> str:
    near = get_close_matches(name, names, 1) if isinstance(name, str) and len(name) < _LONGEST_NAME else []
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are {', '.join(names)}" if names else ""
