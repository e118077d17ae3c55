"""The text of SQL: tokens with their places, and errors that show the line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from malflow.errors import GraphError
from malflow.store.redaction import is_secret_name
from malflow.words import cut, printable

__all__ = ["NOWHERE", "Fault", "Source", "Span", "SqlError", "Token", "tokens"]

_LONGEST_LINE = 160
"""Characters of a line in an error: two lines of a terminal."""

_LONGEST_TEXT = 2_000_000
"""Characters of a text: more would take tens of seconds and a gigabyte."""

_MOST_FAULTS = 20
"""Faults that an error shows: more are mended after these."""


class Span(NamedTuple):
    """A place in a text: from `start` up to, and without, `end`."""

    start: int
    end: int


NOWHERE = Span(0, 0)
"""The place of what nobody wrote."""


class Source:
    """A text of SQL with its name.

    Args:
        text: the text.
        name: the name of its file, or what else it is called in errors.
    """

    def __init__(self, text: str, name: str = "SQL") -> None:
        self.text = text
        self.name = name

    def position(self, at: int) -> tuple[int, int]:
        """Return the line and the column of a place, both counted from 1."""
        return self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)

    def excerpt(self, span: Span) -> str:
        """Return the line of a place, with carets below it."""
        start = self.text.rfind("\n", 0, span.start) + 1
        end = self.text.find("\n", span.start)
        line = _masked(self.text[start : end if end >= 0 else len(self.text)], span.start - start)
        left = max(0, span.start - start - _LONGEST_LINE // 2) if len(line) > _LONGEST_LINE else 0
        shown = line[left : left + _LONGEST_LINE]
        before = "".join("\t" if it == "\t" else " " for it in shown[: span.start - start - left])
        width = max(1, min(span.end, start + left + len(shown)) - span.start)
        number, gap = str(self.position(span.start)[0]), " " * (span.start > start)
        shown = "".join(it if it == "\t" or it.isprintable() else "?" for it in shown)
        return (
            f"  {number} | {shown}\n  {' ' * len(number)} | {before}{'^' * width}" if shown or gap else f"  {number} |"
        )

    def quoted(self, span: Span) -> str:
        """Return the text of a place, in one line, for a sentence."""
        return cut(" ".join(self.text[span.start : span.end].split()), _LONGEST_LINE // 2)


_PASSWORD = re.compile(r"(://[^/?#\s@:']{0,99}:)([^/?#\s@']{1,99})(?=@)")
_PARAMETER = re.compile(r"([?&](?P<name>[^=&'\s]{1,99})=)([^&'\s]{1,999})")
_OPTION = re.compile(r"('(?P<name>[^']{1,99})'\s{0,9}=\s{0,9}')([^']{1,999})")


def _masked(line: str, at: int) -> str:
    """Return a line with stars for passwords in URLs, and for the values of options that hold secrets.

    Only the part of it that an error at a place may show is looked at.
    """
    first, last = max(0, at - 10 * _LONGEST_LINE), at + 10 * _LONGEST_LINE

    def hidden(match: re.Match[str]) -> str:
        return match[1] + "*" * len(match[match.lastindex or 0])

    part = _PASSWORD.sub(hidden, line[first:last])
    for pattern in (_PARAMETER, _OPTION):
        part = pattern.sub(lambda it: hidden(it) if is_secret_name(it["name"]) else it[0], part)
    return line[:first] + part + line[last:]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in a text.

    Attributes:
        message: what is wrong, and the cure.
        span: the place.
        source: the text.
        follows: whether it follows from another fault of the text, such as the one of a table that it names.
    """

    message: str
    span: Span
    source: Source
    follows: bool = False

    def __str__(self) -> str:
        line, column = self.source.position(self.span.start)
        return f"{self.source.name}:{line}:{column}: {self.message}\n{self.source.excerpt(self.span)}"


class SqlError(GraphError):
    """A text of SQL has faults; nothing has run. The message shows each with its line.

    Attributes:
        faults: all faults, in the order of the text.
        line: the line of the first one, from 1.
        column: its column, from 1.
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(sorted(dict.fromkeys(faults), key=lambda it: (it.source.name, it.span)))
        first = self.faults[0]
        shown = [str(it) for it in self.faults[:_MOST_FAULTS]]
        if len(self.faults) > _MOST_FAULTS:
            shown.append(f"and {len(self.faults) - _MOST_FAULTS} more")
        heads = [f"{len(self.faults)} faults:"] if len(self.faults) > 1 else []
        super().__init__("\n".join([*heads, *shown]))
        self.line, self.column = first.source.position(first.span.start)


class Token(NamedTuple):
    """A word, sign or literal of a text.

    Attributes:
        kind: "word", "quoted", "number", "text", "bytes", "parameter", "sign" or "end".
        upper: the word in capitals, or the sign; empty for tokens that are never keywords.
        text: as it is written; of quoted names and texts without the quotes.
        span: its place.
    """

    kind: str
    upper: str
    text: str
    span: Span


_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*(?!\+)(?s:.*?)\*/)
    |(?P<number>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)?)
    |(?P<text>'[^']*(?:''[^']*)*')
    |(?P<bytes>[xX]'[0-9a-fA-F]*')
    |(?P<quoted>`(?:[^`]++|``)++`)
    |(?P<parameter>:[^\W\d]\w*)
    |(?P<word>[^\W\d]\w*)
    |(?P<sign>\|\||<>|!=|>=|<=|=>|::|/\*\+|\*/|/(?!\*)|[-+*%(),.;=<>\[\]{}?|:^$])""",
    re.VERBOSE,
)


def tokens(source: Source) -> list[Token]:
    """Return the tokens of a text, without spaces and comments, and an end.

    Raises:
        SqlError: if it is too long, a character has no meaning in SQL, or a quote or comment is not closed.
    """
    found: list[Token] = []
    text, at = source.text, 0
    if len(text) > _LONGEST_TEXT:
        cure = "put rows into a file that a table reads by its URL"
        wrong = f"the text has {len(text):,} characters, and {_LONGEST_TEXT:,} are read at most; {cure}"
        raise SqlError([Fault(wrong, Span(0, 1), source)])
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SqlError([Fault(_unreadable(text, at), Span(at, at + 1), source)])
        kind, span = match.lastgroup or "", Span(at, match.end())
        written, at = match.group(), match.end()
        if kind in {"word", "sign"}:
            found.append(Token(kind, written.upper(), written, span))
        elif kind == "quoted":
            found.append(Token(kind, "", written[1:-1].replace("``", "`"), span))
        elif kind == "text":
            found.append(Token(kind, "", written[1:-1].replace("''", "'"), span))
        elif kind != "space":
            found.append(Token(kind, "", written, span))
    return [*found, Token("end", "", "", Span(len(text), len(text)))]


def _unreadable(text: str, at: int) -> str:
    if text.startswith("/*", at):
        return "the comment is not closed; write */ at its end"
    if text[at] == "'":
        return "the text is not closed; write ' at its end, and '' for a quote in it"
    if text[at] == "`":
        return "the name is not closed; write ` at its end"
    if text[at] == '"':
        return "names are quoted in backticks, texts in single quotes; there are no double quotes"
    if text[at] == "#":
        return "there is no #: a window is written FROM TABLE(TUMBLE(...)), and a comment begins with --"
    if text[at] == "\0":
        return "the text has a NUL; is the file UTF-16? save it as UTF-8"
    return f"SQL has no character {printable(text[at])}"
