"""Patterns of texts: LIKE, SIMILAR TO, and Java's regular expressions as Python's.

The pieces of a LIKE between its percent signs are searched from left to right, each as early as it can be. A later
place would never help the next piece, so none is tried again: the time does not explode, whatever the text.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["like", "like_test", "regexp", "similar", "similar_test"]

_KEPT = 1_024
"""Compiled patterns that are kept: more than a query has, unless they are in a column."""


def like_test(pattern: str, escape: str) -> tuple[str, object]:
    """Return the source of a LIKE of `{0}`, and the value of its `{1}`.

    Raises:
        ValueError: if it escapes another character.
    """
    inner = pattern.strip("%")
    if not re.search("[%_]", inner) and (not escape or escape not in pattern):
        starts, ends = pattern.startswith("%"), pattern.endswith("%") and pattern != ""
        if starts and ends:
            return "({1} in {0})", inner
        return "{0}.endswith({1})" if starts else "{0}.startswith({1})" if ends else "({0} == {1})", inner
    return "({1}.fullmatch({0}) is not None)", _like(pattern, escape)


def similar_test(pattern: str, escape: str) -> tuple[str, object]:
    """Return the source of a SIMILAR TO of `{0}`, and the value of its `{1}`.

    Raises:
        ValueError: if it is not a pattern.
    """
    return "({1}.fullmatch({0}) is not None)", _similar(pattern, escape)


def like(text: str, pattern: str, escape: str) -> bool:
    """Whether a text is LIKE a pattern that another column has."""
    return _like(pattern, escape).fullmatch(text) is not None


def similar(text: str, pattern: str, escape: str) -> bool:
    """Whether a text is SIMILAR TO a pattern that another column has."""
    return _similar(pattern, escape).fullmatch(text) is not None


@lru_cache(_KEPT)
def _like(pattern: str, escape: str) -> re.Pattern[str]:
    pieces: list[list[str]] = [[]]
    for sign, character in _unescaped(pattern, escape, "%_"):
        if sign == "%":
            pieces.append([])
        else:
            pieces[-1].append("." if sign else re.escape(character))
    first, *rest = pieces
    text = "".join(first)
    if rest:
        middle = "".join(f"(?>.*?{''.join(it)})" for it in rest[:-1] if it)
        text += f"{middle}(?=.{{{len(rest[-1])}}}).*+(?<={''.join(rest[-1])})"
    return re.compile(text, re.DOTALL)


def _unescaped(pattern: str, escape: str, signs: str) -> list[tuple[str, str]]:
    """Return each character of a pattern: as a sign with its meaning, and as itself.

    Raises:
        ValueError: if another character than a sign is escaped.
    """
    found: list[tuple[str, str]] = []
    characters = iter(pattern)
    for it in characters:
        if it != escape:
            found.append((it if it in signs else "", it))
            continue
        escaped = next(characters, "")
        if not escaped or escaped not in f"{signs}{escape}":
            raise ValueError(
                f"{pattern!r} escapes {escaped!r}; {escape!r} stands before {' or '.join(signs)}, or itself"
            )
        found.append(("", escaped))
    return found


_POSIX = re.compile(r"\[:(\w+):\]")
_OF_POSIX = {"ALPHA": "a-zA-Z", "DIGIT": "0-9", "ALNUM": "a-zA-Z0-9", "UPPER": "A-Z", "LOWER": "a-z", "SPACE": " "}
_OF_POSIX["WHITESPACE"] = " \t\n\r\f\v"


@lru_cache(_KEPT)
def _similar(pattern: str, escape: str) -> re.Pattern[str]:
    signs = _unescaped(_POSIX.sub(_posix_class, pattern), escape, "%_[]()|^-+*?{}.")
    meant = {"%": "(?:.*)", "_": "."}
    parts = [meant.get(sign, character if sign else re.escape(character)) for sign, character in signs]
    return regexp("(?s)" + "".join(parts))


def _posix_class(match: re.Match[str]) -> str:
    found = _OF_POSIX.get(match[1].upper())
    if found is None:
        raise ValueError(f"there is no class {match[0]}; there are {', '.join(_OF_POSIX)}")
    return found


_PART = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|\Z)
    |\\(?P<no>[pP])\{(?P<property>\w+)\}
    |\\k<(?P<back>\w+)>
    |\\(?P<escaped>.)
    |(?P<group>\(\?<(?![=!]))
    |(?P<open>\[\^?)
    |(?P<close>\])
    |(?P<dot>\.)
    |(?P<both>&&)
    |(?P<set>[|~&])""",
    re.VERBOSE | re.DOTALL,
)
"""Where Java's regular expressions are not Python's, or would draw a warning."""

_CLASSES = {
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Upper": "A-Z",
    "Lower": "a-z",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r"\s",
    "Blank": r" \t",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
}

_LETTERS = {"L": r"(?u:[^\W\d_])", "IsAlphabetic": r"(?u:[^\W\d_])", "N": r"(?u:\d)", "Nd": r"(?u:\d)"}
"""Classes of Unicode, outside of brackets."""

_ESCAPES = {"z": r"\Z", "Z": r"(?=\n?\Z)", "h": r"[ \t\xa0]", "R": r"(?:\r\n|[\n-\r\x85\u2028\u2029])", "e": r"\x1b"}
_DOT = r"[^\n\r\x85\u2028\u2029]"
"""A character within a line, as Java sees lines."""


@lru_cache(_KEPT)
def regexp(text: str) -> re.Pattern[str]:
    """Return a regular expression of Java, compiled: words, digits and letters without case are ASCII, as there.

    Raises:
        ValueError: if it is not one, or has a part that Python lacks.
    """
    try:
        return re.compile(_translated(text), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def _translated(text: str) -> str:
    parts: list[str] = []
    at, in_class, is_single_line = 0, False, re.match(r"\(\?[a-z]*s", text) is not None
    for match in _PART.finditer(text):
        kind = match.lastgroup
        if in_class and kind in {"open", "both"}:
            raise ValueError(f"{text!r} has a class within a class; write its characters in one")
        parts += text[at : match.start()], _part(match, in_class=in_class, is_single_line=is_single_line)
        at, in_class = match.end(), kind == "open" if kind in {"open", "close"} else in_class
    return "".join((*parts, text[at:]))


def _part(match: re.Match[str], *, in_class: bool, is_single_line: bool) -> str:
    """Return a part of a regular expression as Python writes it."""
    match match.lastgroup:
        case "quoted":
            return re.escape(match["quoted"])
        case "property":
            return _property(match, in_class=in_class)
        case "back":
            return f"(?P={match['back']})"
        case "escaped" if not in_class:
            return _ESCAPES.get(match["escaped"], match[0])
        case "group":
            return "(?P<"
        case "dot" if not in_class and not is_single_line:
            return _DOT
        case "set" if in_class:
            return f"\\{match[0]}"
    return match[0]


def _property(match: re.Match[str], *, in_class: bool) -> str:
    name, negated = match["property"], match["no"] == "P"
    if name in _CLASSES and not (in_class and negated):
        return _CLASSES[name] if in_class else f"[{'^' * negated}{_CLASSES[name]}]"
    if name in _LETTERS and not in_class:
        return f"(?!{_LETTERS[name]})(?s:.)" if negated else _LETTERS[name]
    raise ValueError(f"{match[0]} is not supported {'in brackets' if in_class else 'here'}; write a range, such as A-Z")
