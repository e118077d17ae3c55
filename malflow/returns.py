"""Find functions with a forgotten ``return``."""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
from collections.abc import Iterator
from functools import lru_cache, partial
from types import CodeType
from typing import Any

__all__ = ["may_end_without_return", "returns_nothing"]

_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_NEVER = ("NoReturn", "Never")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_Definition = ast.FunctionDef | ast.AsyncFunctionDef


def returns_nothing(function: Any) -> bool:
    """Whether a function may end but has no ``return`` with a value; False if uncertain.

    ``return None`` counts as a value. False also for a lambda, a function not written in Python, a function that never
    ends (it always raises, or is annotated with `NoReturn`), and a generator function.

    >>> def forgetful(value): value += 1
    >>> def deliberate(value): return None
    >>> returns_nothing(forgetful), returns_nothing(partial(deliberate, 1)), returns_nothing(print)
    (True, False, False)
    """
    target = _written_in_python(function)
    if target is None or _is_said_not_to_end(target):
        return False
    code = target.__code__
    if code.co_flags & _RUNS_LATER or code.co_name == "<lambda>":
        return False
    ends = list(_ends(code))
    if not ends or not all(is_none for _, is_none in ends):
        return False
    definition = _definition(code)
    if definition is None:
        return all(_is_implied(code, end) for end, _ in ends)
    return all(it.value is None for it in _returns(definition))


def may_end_without_return(function: Any) -> bool:
    """Whether a function has a ``return`` with a value and may end without one.

    False if uncertain: for a function whose source can't be read, or that is not written in Python.
    """
    target = _written_in_python(function)
    definition = None if target is None or target.__code__.co_flags & _RUNS_LATER else _definition(target.__code__)
    if target is None or definition is None:
        return False
    written = list(_returns(definition))
    return any(it.value is not None for it in written) and any(
        is_none and not any(_is_within(end, it) for it in written) for end, is_none in _ends(target.__code__)
    )


def _written_in_python(function: Any) -> Any:
    """Return the function that a call runs first, such as a wrapper, if it is written in Python."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return None
    for target in (function, getattr(function, "__func__", None), getattr(type(function), "__call__", None)):  # noqa: B004 - the attribute is inspected, not only tested for
        if isinstance(getattr(target, "__code__", None), CodeType):
            return target
    return None


def _is_said_not_to_end(function: Any) -> bool:
    said = getattr(function, "__annotations__", {}).get("return")
    return str(said).rpartition(".")[2] in _NEVER


def _ends(code: CodeType) -> Iterator[tuple[dis.Instruction, bool]]:
    """Yield the instructions that end a function by returning, and whether each returns the constant None."""
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST":
            yield instruction, instruction.argval is None
        elif instruction.opname == "RETURN_VALUE":
            is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            yield instruction, is_none and not instruction.is_jump_target
        before = instruction


def _is_implied(code: CodeType, end: dis.Instruction) -> bool:
    """Whether the None is implied by the end of another statement, rather than returned by ``return None``."""
    if end.positions is None or end.positions.col_offset is None:
        return False
    own = ("RETURN_CONST", "RETURN_VALUE", "NOP")
    return any(
        it.positions == end.positions and it.opname not in own and not (it.opname == "LOAD_CONST" and it.argval is None)
        for it in dis.get_instructions(code)
    )


def _is_within(end: dis.Instruction, written: ast.Return) -> bool:
    at = end.positions
    if at is None or at.lineno is None or at.col_offset is None:
        return True
    first, last = (written.lineno, written.col_offset), (written.end_lineno or 0, written.end_col_offset or 0)
    return first <= (at.lineno, at.col_offset) < last


def _definition(code: CodeType) -> _Definition | None:
    """Return the definition of a function in its source; None if there is no source, or it has changed."""
    lines = linecache.getlines(code.co_filename)
    return None if not lines else _definitions("".join(lines)).get((code.co_name, code.co_firstlineno))


@lru_cache(maxsize=8)
def _definitions(source: str) -> dict[tuple[str, int], _Definition]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # it has changed since, or is not only Python
        return {}
    found = [it for it in ast.walk(tree) if isinstance(it, _Definition)]
    return {(it.name, min([it.lineno, *(mark.lineno for mark in it.decorator_list)])): it for it in found}


def _returns(definition: _Definition) -> Iterator[ast.Return]:
    """Yield the returns of a function, but not of functions and classes in it."""
    nodes: list[ast.AST] = list(definition.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            nodes.extend(ast.iter_child_nodes(node))
