"""Patterns of one event: a name and a condition."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, overload

from malflow.patterns.checks import check_kind, check_name, check_predicate, is_class, malformed
from malflow.patterns.match import SoFar
from malflow.patterns.pattern import Pattern
from malflow.patterns.tree import Single, Step

__all__ = ["step"]

V = TypeVar("V")

_KindValue = str | bytes | int | float | Enum | tuple[Hashable, ...]


@overload
def step(
    name: str,
    kind: UnionType,
    where: Callable[[Any], object] | None = None,
    *,
    given: Callable[[Any, SoFar[Any]], object] | None = None,
) -> Pattern[Any]: ...
@overload
def step(
    name: str,
    kind: type[V],
    where: Callable[[V], object] | None = None,
    *,
    given: Callable[[V, SoFar[Any]], object] | None = None,
) -> Pattern[V]: ...
@overload
def step(
    name: str, kind: Callable[[V], object], /, *, given: Callable[[V, SoFar[Any]], object] | None = None
) -> Pattern[V]: ...
@overload
def step(
    name: str, *, where: Callable[[V], object], given: Callable[[V, SoFar[Any]], object] | None = None
) -> Pattern[V]: ...
@overload
def step(name: str, *, given: Callable[[V, SoFar[Any]], object]) -> Pattern[V]: ...
@overload
def step(name: str, kind: Callable[[Any], object], /) -> Pattern[Any]: ...  # for lambdas
@overload
def step(
    name: str,
    kind: _KindValue | None = None,
    where: Callable[[Any], object] | None = None,
    *,
    given: Callable[[Any, SoFar[Any]], object] | None = None,
) -> Pattern[Any]: ...
def step(name: str, kind: Any = None, where: Any = None, *, given: Any = None) -> Pattern[Any]:
    """Return the pattern of one event.

    The functions must depend only on their arguments: they are not called again after a restart, nor for each partial
    match.

    Args:
        name: the name of the step, unique in a pattern. The same step object may occur again; its events share the
            name.
        kind: a class, or a union of classes, of which the value must be an instance; a value returned by
            ``match(kind=...)``; or a predicate, in place of `where`.
        where: a predicate of a value, called only for values of the kind.
        given: ``(value, so_far) -> object``: a predicate of a value and the match so far, called only if the other
            conditions hold and a partial match waits for this step. ``so_far["name"]`` is a list, and
            ``so_far.last("name")`` its last value, or None.

    Raises:
        GraphError: if an argument is not of this kind.

    >>> str(step("failed", lambda login: not login["ok"]))
    'failed'
    """
    check_name(name)
    if not is_class(kind) and callable(kind):
        if where is not None:
            raise malformed(f"step {name!r} has two predicates; write one, after a class or a kind")
        kind, where = None, kind
    check_kind(name, kind)
    check_predicate(name, "where", where, "value")
    check_predicate(name, "given", given, "value, so_far")
    return Pattern(Single(Step(name, kind, where, given)))
