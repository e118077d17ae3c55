"""Canonical texts of expressions: what a state is of, whatever a query calls its columns.

In the text of an expression each column is written as the expression that it was computed by, down to the columns of
tables. So layout, comments and aliases don't count, nor do queries in FROM.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class _Word(Expression):
    """A text that stands for an expression."""

    text: str

    def __str__(self) -> str:
        return self.text


class Written:
    """The text of an expression, made when it is asked for: few expressions are of a state.

    Args:
        node: the expression.
        scope: its columns.
        parameters: the values of parameters.
        functions: the names of the user's functions.
    """

    __slots__ = ("_functions", "_node", "_parameters", "_scope", "_tree")

    def __init__(
        self, node: Expression, scope: Scope, parameters: Mapping[str, Value], functions: Container[str]
    ) -> None:
        self._node = node
        self._scope = scope
        self._parameters = parameters
        self._functions = functions
        self._tree: Expression | None = None

    @property
    def tree(self) -> Expression:
        """The expression with the expressions of its columns in it; one word if that is too long."""
        if self._tree is None:
            found: Expression = renewed(self._node, self._canonical, Expression)
            text = str(found)
            digest = blake2b(text.encode(), digest_size=16).hexdigest()
            self._tree = found if len(text) <= _LONGEST else _Word(f"{text[: _LONGEST // 2]}... ({digest})")
        return self._tree

    def __str__(self) -> str:
        return str(self.tree)

    def _canonical(self, node: Expression) -> Expression | None:
        match node:
            case Reference():
                column, members = self._scope.find(node)
                its = column.written
                found = its.tree if isinstance(its, Written) else _Word(inner(str(its)))
                path = "".join(f".{quoted_name(it.text)}" for it in members)
                return _Word(f"{inner(str(found))}{path}") if members else found
            case Literal(kind="PARAMETER"):
                return _Word(repr(self._parameters[node.text].value))
            case Call() if node.name.text not in self._functions and node.name.text != node.name.text.upper():
                known = replace(node, name=Name(node.name.text.upper()))
                return renewed(known, self._canonical, Expression)  # type: ignore[no-any-return]  # a call
        return None


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
