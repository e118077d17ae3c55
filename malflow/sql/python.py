"""Typed expressions become Python source.

SQL has three truth values, and Python's tests have two. Where only TRUE counts, as in WHERE, no third value is made:
`when(p, True)` is source that is truthy exactly if p IS TRUE, `when(p, False)` if p IS FALSE. NOT swaps the two, AND
and OR go by De Morgan, and a strict calculation has `x is not None` before it for each operand that may be NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice

from malflow.sql import typed

__all__ = ["PythonWriter"]

_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

_SHORT = 16
"""Parts of a condition that is written twice: the text of longer ones would double at each level."""

_PLACE = re.compile(r"\{(\d+)\}")

_FLOATS = frozenset({"FLOAT", "DOUBLE"})
"""Types with NaN: for them `not a < b` is not `a >= b`."""


class PythonWriter:
    """Writes expressions over the columns of a row.

    Args:
        columns: the variable of each column; None for `c0`, `c1` and so on.

    Attributes:
        constants: what the source names beside its columns: literals without a source of their own.
        used: the places of the columns that were written.
    """

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self._columns = columns
        self._temporaries = 0
        self._names: dict[int, str] = {}
        self.constants: dict[str, object] = {}
        self.used: set[int] = set()

    def value(self, node: typed.Typed) -> str:
        """Return the source of a value; None for NULL."""
        match node:
            case typed.Column():
                return self._column(node)
            case typed.Value():
                return self._constant(node.value)
            case typed.Strict() | typed.Comparison():
                return self._guarded(*self._strict(node))
            case typed.Lenient():
                return self._filled(node.template, [self.value(it) for it in node.operands])
            case typed.Called():
                return f"{self._constant(node.function)}({', '.join(map(self.value, node.operands))})"
            case typed.Picked():
                return self._chosen(node, self.value)
            case typed.First():
                return self._first(node)
            case typed.Kept():
                return self._names[node.key]
            case typed.Keeping():
                keep, body = self._kept(node, self.value)
                return f"({body} if {keep} else None)"
        return self._truth(node)

    def when(self, node: typed.Typed, wanted: bool = True) -> str:
        """Return source that is truthy exactly if a condition IS TRUE, or IS FALSE."""
        match node:
            case typed.Value():
                return str(node.value is wanted)
            case typed.Not():
                return self.when(node.operand, not wanted)
            case typed.Connected():
                word = " and " if (node.op == "AND") is wanted else " or "
                return f"({word.join(self.when(it, wanted) for it in node.operands)})"
            case typed.Comparison():
                guards, text = self._comparison(node, wanted)
                return f"({' and '.join([*guards, text])})"
            case typed.OneOf():
                return self._one_of(node, wanted)
            case typed.IsNull():
                return self._is_null(node, node.negated is not wanted)
            case typed.IsTruth():
                inner = self.when(node.operand, node.value)
                return inner if node.negated is not wanted else f"(not {inner})"
            case typed.Picked():
                return self._chosen(node, lambda it: self.when(it, wanted))
            case typed.Keeping():
                return f"({' and '.join(self._kept(node, lambda it: self.when(it, wanted)))})"
        return f"({self.value(node)} is {wanted})"

    def _is_null(self, node: typed.IsNull, wanted: bool) -> str:
        if not node.operand.type.nullable:
            return str(not wanted)
        return f"({self.value(node.operand)} is {'' if wanted else 'not '}None)"

    def _truth(self, node: typed.Typed) -> str:
        """Return the source of TRUE, FALSE or NULL: by two tests if it is short, else from the values of its parts."""
        if not node.type.nullable:
            return f"(True if {self.when(node)} else False)"
        if sum(1 for _ in islice(typed.all_within(node), _SHORT + 1)) <= _SHORT:
            return f"(True if {self.when(node)} else False if {self.when(node, False)} else None)"
        match node:
            case typed.Connected():
                decides = node.op == "OR"
                names = [self._temporary() for _ in node.operands]
                tests = [f"({name} := {self.value(it)})" for name, it in zip(names, node.operands, strict=True)]
                decided = " or ".join(f"{it} is {decides}" for it in tests)
                unknown = " or ".join(f"{it} is None" for it in names)
                return f"({decides} if {decided} else None if {unknown} else {not decides})"
            case typed.Not():
                name = self._temporary()
                return f"(None if ({name} := {self.value(node.operand)}) is None else not {name})"
            case typed.OneOf():
                guards, text = self._operand(node.operand)
                found = f"{text} in {self._listed(node)}"
                found = f"(True if {found} else None)" if node.has_null else f"({found})"
                return self._guarded(guards, f"(None if {found} is None else {node.negated} is not {found})")
        raise TypeError(f"{type(node).__name__} has no truth of its own")

    def _kept(self, node: typed.Keeping, write: Callable[[typed.Typed], str]) -> tuple[str, str]:
        """Return the source of a test that keeps a value and is always true, and of the body."""
        operand, before = self.value(node.operand), self._names.get(node.key, "")
        name = self._names[node.key] = self._temporary()
        body = write(node.body)
        self._names[node.key] = before
        return f"(({name} := {operand}) or True)", body

    def _column(self, node: typed.Column) -> str:
        self.used.add(node.index)
        return self._columns[node.index] if self._columns else f"c{node.index}"

    def _constant(self, value: object) -> str:
        """Return the source of a literal, or a name where its repr is not valid source."""
        if value is None or type(value) in {bool, int, str, bytes}:
            return f"({value!r})" if type(value) is int and value < 0 else repr(value)
        if type(value) is float and value - value == 0:
            return f"({value!r})"
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    @staticmethod
    def _filled(template: str, operands: Sequence[str]) -> str:
        return _PLACE.sub(lambda match: operands[int(match[1])], template)

    @staticmethod
    def _guarded(guards: Sequence[str], text: str) -> str:
        return f"({text} if {' and '.join(guards)} else None)" if guards else text

    def _operand(self, node: typed.Typed) -> tuple[list[str], str]:
        """Return an operand of a strict calculation: the tests that it is not NULL, and its source."""
        if not node.type.nullable:
            return [], self.value(node)
        if isinstance(node, typed.Column | typed.Kept):
            text = self.value(node)
            return [f"{text} is not None"], text
        if isinstance(node, typed.Strict) and not node.may_be_null:
            return self._strict(node)
        name = self._temporary()
        return [f"({name} := {self.value(node)}) is not None"], name

    def _strict(self, node: typed.Typed) -> tuple[list[str], str]:
        if isinstance(node, typed.Comparison):
            return self._comparison(node, True)
        if not isinstance(node, typed.Strict):
            raise TypeError(f"{type(node).__name__} is not a strict calculation")
        guards: list[str] = []
        texts: list[str] = []
        for it in node.operands:
            tests, text = self._operand(it)
            guards += [test for test in tests if test not in guards]
            texts.append(text)
        return guards, self._filled(node.template, texts)

    def _comparison(self, node: typed.Comparison, wanted: bool) -> tuple[list[str], str]:
        guards, left = self._operand(node.left)
        more, right = self._operand(node.right)
        guards += [test for test in more if test not in guards]
        if wanted:
            return guards, f"({left} {node.op} {right})"
        if {node.left.type.kind, node.right.type.kind} & _FLOATS:
            return guards, f"(not {left} {node.op} {right})"
        return guards, f"({left} {_OPPOSITE[node.op]} {right})"

    def _one_of(self, node: typed.OneOf, wanted: bool) -> str:
        found = wanted is not node.negated
        word = "in" if found else "not in"
        if not found and node.has_null:
            return "False"
        if not node.values:
            return "False"
        guards, text = self._operand(node.operand)
        return f"({' and '.join([*guards, f'{text} {word} {self._listed(node)}'])})"

    def _listed(self, node: typed.OneOf) -> str:
        return f"({''.join(f'{self.value(it)}, ' for it in node.values).rstrip()})"

    def _chosen(self, node: typed.Picked, write: Callable[[typed.Typed], str]) -> str:
        """Return the source of the first value with a true test: one chain, as Python limits brackets in brackets."""
        text = ""
        for test, value in node.ways:
            condition = self.when(test)
            text += f"{write(value)} if {condition} else "
        return f"({text}{write(node.other)})"

    def _first(self, node: typed.First) -> str:
        text = ""
        for it in node.operands[:-1]:
            name = self._temporary()
            text += f"{name} if ({name} := {self.value(it)}) is not None else "
        return f"({text}{self.value(node.operands[-1])})"
