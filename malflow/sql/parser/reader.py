"""Reading tokens: looking ahead, names and lists, and how deep a text is nested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from malflow.sql.syntax.expressions import RESERVED, Name
from malflow.sql.text import Fault, Source, Span, SqlError, Token, tokens

__all__ = ["DEEPEST", "Reader"]

T = TypeVar("T")

DEEPEST = 60
"""How deep brackets, functions and queries are nested: each level takes up to ten calls of Python's thousand."""


class Reader:
    """A text, and how far it has been read.

    Args:
        source: the text.

    Raises:
        SqlError: if it has characters that are none of SQL.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._tokens = tokens(source)
        self._at = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    def ahead(self, count: int = 1) -> Token:
        """Return a token after the next one."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def skip(self) -> Token:
        """Read a token, whatever it is."""
        token = self.token
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def skip_statement(self) -> None:
        """Read up to the end of the statement, without its semicolon."""
        while self.token.kind != "end" and self.token.upper != ";":
            self.skip()

    def peek(self, *words: str) -> bool:
        """Whether words or signs come next."""
        return all(self.ahead(at).upper == word for at, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Read words or signs if they come next; return whether they did."""
        if not self.peek(*words):
            return False
        self._at += len(words)
        return True

    def take_one(self, *words: str) -> str:
        """Read one of several words if it comes next, and return it; an empty text otherwise."""
        return self.skip().upper if self.token.upper in words else ""

    def need_one(self, *words: str) -> str:
        """Read one of several words, and return it."""
        word = self.take_one(*words)
        if not word:
            raise self.fault(f"expected {' or '.join(words)}")
        return word

    def need(self, *words: str) -> None:
        """Read words or signs that must come next."""
        for word in words:
            if not self.take(word):
                raise self.fault(f"expected {word}")

    def fault(self, message: str, span: Span | None = None) -> SqlError:
        """Return the error of a fault at a place, by default at the next token. The message shows that token."""
        if span is None:
            got = self.source.quoted(self.token.span) or "the end"
            message, span = f"{message}, got {got}", self.token.span
        return SqlError([Fault(message, span, self.source)])

    def since(self, start: Token) -> Span:
        """Return the place from a token up to what was read last."""
        return Span(start.span.start, max(start.span.end, self._tokens[self._at - 1].span.end if self._at else 0))

    def chained(self, count: int, what: str) -> None:
        """Check how many operators stand in a row: each one makes the tree deeper.

        Raises:
            SqlError: if there are too many.
        """
        if count >= _MOST_CHAINED:
            cure = "use brackets, or put parts into views"
            raise self.fault(f"more than {_MOST_CHAINED} {what} in a row; {cure}", self.token.span)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Count a level of nesting.

        Raises:
            SqlError: if there are too many.
        """
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.fault(f"more than {DEEPEST} levels of nesting; put the inner parts into views", self.token.span)
        try:
            yield
        finally:
            self._depth -= 1

    def is_name(self) -> bool:
        """Whether a name comes next."""
        kind = self.token.kind
        return kind == "quoted" or (kind == "word" and self.token.upper not in RESERVED)

    def name(self, what: str = "a name") -> Name:
        """Read a name."""
        token = self.token
        if not self.is_name():
            hint = f"; {token.text} is a word of SQL, write `{token.text}` for a name" if token.kind == "word" else ""
            raise self.fault(f"expected {what}{hint}")
        self.skip()
        return Name(token.text, span=token.span)

    def table_name(self, what: str = "a table") -> Name:
        """Read the name of a table, view or function."""
        name = self.name(what)
        if self.peek("."):
            raise self.fault("there are no catalogs and databases; write the last name alone")
        return name

    def text(self, what: str = "a text in single quotes") -> str:
        """Read a text."""
        if self.token.kind != "text":
            raise self.fault(f"expected {what}")
        return self.skip().text

    def whole_number(self) -> int:
        """Read a whole number."""
        text = self.token.text
        if self.token.kind != "number" or not text.isdecimal() or len(text) > _LONGEST_NUMBER:
            raise self.fault("expected a whole number")
        return int(self.skip().text)

    def listed(self, one: Callable[[], T]) -> tuple[T, ...]:
        """Read one thing or more, with commas between them."""
        found = [one()]
        while self.comma():
            found.append(one())
        return tuple(found)

    def comma(self) -> bool:
        """Read a comma between two things if it comes next; return whether it did."""
        comma = self.token
        if not self.take(","):
            return False
        if self.token.kind == "end" or self.token.upper in _AFTER_LISTS:
            raise self.fault("there is a comma too many; remove it", comma.span)
        return True

    def bracketed(self, one: Callable[[], T]) -> tuple[T, ...]:
        """Read a list in brackets."""
        self.need("(")
        found = self.listed(one)
        self.need(")")
        return found


_MOST_CHAINED = 100
"""Operators, joins or queries in a row: each takes some calls of Python's thousand when the tree is bound."""

_AFTER_LISTS = frozenset({")", ",", ";", "]", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION"})
"""Signs and words that no element of a list begins with."""

_LONGEST_NUMBER = 18
"""Digits of a size or limit: such numbers are small."""
