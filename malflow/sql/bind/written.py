"""Canonical texts of expressions: what a state is of, whatever a query calls its columns.

In the text of an expression each column is written as the expression that it was computed by, down to the columns of
tables. So layout, comments and aliases don't count, nor do queries in FROM.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import TypeVar

from malflow.sql.bind.scope import Scope
from malflow.sql.bind.windows import renewed
from malflow.sql.syntax.expressions import Call, Expression, Literal, Name, Reference, quoted_name
from malflow.sql.typed import Typed, Value

__all__ = ["Path", "Written", "in_order", "inner"]

N = TypeVar("N", bound=Typed)

_ATOM = re.compile(r"(?:\w+|`[^`]+`)(?:\.(?:\w+|`[^`]+`))*(?:\([^()]*\))?")
"""What needs no brackets within another expression: a name, a path of names, or a call."""


_LONGEST = 1_000
"""Characters of a text: an expression that takes the column of another query twice would double it each time."""


def inner(text: str) -> str:
    """Return a text as a part of another one."""
    return text if _ATOM.fullmatch(text) else f"({text})"


class Written:
    """The text of an expression, made when it is asked for: few expressions are of a state.

    Args:
        node: the expression.
        scope: its columns.
        parameters: the values of parameters.
        functions: the names of the user's functions.
    """

    __slots__ = ("_functions", "_node", "_parameters", "_scope", "_text")

    def __init__(
        self, node: Expression, scope: Scope, parameters: Mapping[str, Value], functions: Container[str]
    ) -> None:
        self._node = node
        self._scope = scope
        self._parameters = parameters
        self._functions = functions
        self._text = ""

    def __str__(self) -> str:
        if not self._text:
            text = str(renewed(self._node, self._canonical, Expression))
            digest = blake2b(text.encode(), digest_size=16).hexdigest()
            self._text = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}... ({digest})"
        return self._text

    def _canonical(self, node: Expression) -> Expression | None:
        match node:
            case Reference():
                column, members = self._scope.find(node)
                path = "".join(f".{quoted_name(it.text)}" for it in members)
                return _verbatim(f"{inner(str(column.written))}{path}")
            case Literal(kind="PARAMETER"):
                value = self._parameters[node.text]
                return _verbatim(f"{value.value!r}")
            case Call() if node.name.text not in self._functions and node.name.text != node.name.text.upper():
                known = replace(node, name=Name(node.name.text.upper()))
                return renewed(known, self._canonical, Expression)  # type: ignore[no-any-return]  # a call
        return None


def _verbatim(text: str) -> Literal:
    return Literal("WORD", text)


class Path:
    """The text of a column of a part, such as of a side of a join.

    Args:
        part: the part.
        column: the text of the column in it, or what makes it.
    """

    __slots__ = ("_column", "_part")

    def __init__(self, part: str, column: object) -> None:
        self._part = part
        self._column = column

    def __str__(self) -> str:
        return f"{self._part}.{inner(str(self._column))}"


def in_order(nodes: Iterable[N]) -> list[N]:
    """Return expressions in the order of their texts: their order in a query counts for no state."""
    return sorted(nodes, key=lambda it: str(it.written))
