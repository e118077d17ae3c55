"""Aggregators: what `aggregate` computes for each key, or for each key and window.

>>> from malflow import agg
>>> aggregate(agg.sum("amount"), [{"amount": 2}, {"amount": 3}])
5

A field, the argument of most functions, is the name of an item of a mapping, or of an attribute of any other value; or
a function of the value. Without one the value itself is aggregated. A missing field is an error, and None is one where
a number is needed: call ``filter`` first to drop such records.

Several aggregators run as one generated loop, in which equal parts are computed once: `count`, `sum` and `mean` of a
field keep one count and one sum. Records are added one by one in the order of their arrival.

In the examples, ``aggregate(aggregator, values)`` adds the values, at the timestamps 0, 1, 2, ..., and returns the
result.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from keyword import iskeyword
from typing import Any, TypeVar, overload

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.extremes import Max, Min
from malflow.aggregators.fields import checked_callable, checked_field
from malflow.aggregators.folds import Fold
from malflow.aggregators.fuse import checked_aggregator
from malflow.aggregators.labels import label
from malflow.aggregators.several import Into, Several
from malflow.aggregators.sums import Count, Mean, Sum
from malflow.callables import takes
from malflow.diagnostics import location
from malflow.errors import GraphError

__all__ = ["Aggregator", "count", "fold", "into", "max", "mean", "min", "sum", "tuple_"]

V = TypeVar("V")
A = TypeVar("A")
N = TypeVar("N")
R = TypeVar("R")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R4 = TypeVar("R4")
R5 = TypeVar("R5")
R6 = TypeVar("R6")


@overload
def count() -> Aggregator[Any, int, int]: ...
@overload
def count(predicate: Callable[[V], object]) -> Aggregator[V, int, int]: ...
@overload
def count(predicate: str) -> Aggregator[Any, int, int]: ...
def count(predicate: Any = None) -> Any:
    """Count the records, or those that satisfy a predicate. State: an integer.

    Args:
        predicate: a function of the value, or a field that is true.

    >>> aggregate(agg.count(), "abc"), aggregate(agg.count(str.isupper), "aBC")
    (3, 2)
    """
    return Count(checked_field("agg.count", predicate))


@overload
def sum() -> Aggregator[Any, Any, Any]: ...
@overload
def sum(field: Callable[[V], N]) -> Aggregator[V, Any, N]: ...
@overload
def sum(field: str) -> Aggregator[Any, Any, Any]: ...
def sum(field: Any = None) -> Any:
    """Add up a field: numbers, timedeltas, or anything else with ``+``. State: the sum.

    Floats are added one by one, in the order of arrival; the error is within n * 1.1e-16 of the sum of magnitudes.
    See `fsum` for a sum without error.

    >>> aggregate(agg.sum(len), ["a", "bcd"])
    4
    """
    return Sum(checked_field("agg.sum", field))


@overload
def min() -> Aggregator[Any, Any, Any]: ...
@overload
def min(field: Callable[[V], N]) -> Aggregator[V, Any, N]: ...
@overload
def min(field: str) -> Aggregator[Any, Any, Any]: ...
def min(field: Any = None) -> Any:
    """Return the least of a field; of equal ones that of the first record. State: the least.

    >>> aggregate(agg.min(), [3, 1, 2])
    1
    """
    return Min(checked_field("agg.min", field))


@overload
def max() -> Aggregator[Any, Any, Any]: ...
@overload
def max(field: Callable[[V], N]) -> Aggregator[V, Any, N]: ...
@overload
def max(field: str) -> Aggregator[Any, Any, Any]: ...
def max(field: Any = None) -> Any:
    """Return the greatest of a field; of equal ones that of the first record. State: the greatest.

    >>> aggregate(agg.max(), [3, 1, 2])
    3
    """
    return Max(checked_field("agg.max", field))


@overload
def mean() -> Aggregator[Any, Any, Any]: ...
@overload
def mean(field: Callable[[V], int]) -> Aggregator[V, Any, float]: ...
@overload
def mean(field: Callable[[V], N]) -> Aggregator[V, Any, N]: ...
@overload
def mean(field: str) -> Aggregator[Any, Any, Any]: ...
def mean(field: Any = None) -> Any:
    """Return the arithmetic mean of a field. State: a count and a `sum`, whose precision it has.

    >>> aggregate(agg.mean("amount"), [{"amount": 2}, {"amount": 3}])
    2.5
    """
    return Mean(checked_field("agg.mean", field))


@overload
def fold(
    create: Callable[[], A], add: Callable[[A, V], A], merge: Callable[[A, A], A] | None = None
) -> Aggregator[V, A, A]: ...
@overload
def fold(
    create: Callable[[], A],
    add: Callable[[A, V], A],
    merge: Callable[[A, A], A] | None = None,
    *,
    result: Callable[[A], R],
) -> Aggregator[V, A, R]: ...
@overload
def fold(
    create: Callable[[], A], add: Callable[[A, V, Any], A], merge: Callable[[A, A], A] | None = None
) -> Aggregator[V, A, A]: ...
@overload
def fold(
    create: Callable[[], A],
    add: Callable[[A, V, Any], A],
    merge: Callable[[A, A], A] | None = None,
    *,
    result: Callable[[A], R],
) -> Aggregator[V, A, R]: ...
def fold(create: Any, add: Any, merge: Any = None, *, result: Any = None) -> Any:
    """Aggregate with functions. State: what they return.

    Args:
        create: returns an empty accumulator.
        add: ``(accumulator, value)``, or ``(accumulator, value, timestamp)``: returns the accumulator, the same one
            changed in place, or another.
        merge: ``(one, other)``: returns a new accumulator of the values of both, those of `one` first, and changes
            neither. Sliding windows and sessions need it.
        result: returns the result for an accumulator, without giving out the accumulator itself. By default it is a
            deep copy.

    >>> aggregate(agg.fold(str, lambda text, word, timestamp: f"{text}{timestamp}{word} "), ["to", "be"])
    '0to 1be '
    """
    checked_callable("agg.fold", create, 0, "()")
    timed = callable(add) and not takes(add, 2)
    checked_callable("agg.fold", add, 3 if timed else 2, "(accumulator, value) or (accumulator, value, timestamp)")
    if merge is not None:
        checked_callable("agg.fold", merge, 2, "(one, other)")
    if result is not None:
        checked_callable("agg.fold", result, 1, "(accumulator)")
    return Fold(create, add, merge, result, timed)


@overload
def tuple_(one: Aggregator[V, Any, R1], /) -> Aggregator[V, Any, tuple[R1]]: ...
@overload
def tuple_(one: Aggregator[V, Any, R1], two: Aggregator[V, Any, R2], /) -> Aggregator[V, Any, tuple[R1, R2]]: ...
@overload
def tuple_(
    one: Aggregator[V, Any, R1], two: Aggregator[V, Any, R2], three: Aggregator[V, Any, R3], /
) -> Aggregator[V, Any, tuple[R1, R2, R3]]: ...
@overload
def tuple_(
    one: Aggregator[V, Any, R1],
    two: Aggregator[V, Any, R2],
    three: Aggregator[V, Any, R3],
    four: Aggregator[V, Any, R4],
    /,
) -> Aggregator[V, Any, tuple[R1, R2, R3, R4]]: ...
@overload
def tuple_(
    one: Aggregator[V, Any, R1],
    two: Aggregator[V, Any, R2],
    three: Aggregator[V, Any, R3],
    four: Aggregator[V, Any, R4],
    five: Aggregator[V, Any, R5],
    /,
) -> Aggregator[V, Any, tuple[R1, R2, R3, R4, R5]]: ...
@overload
def tuple_(*aggregators: Aggregator[V, Any, Any]) -> Aggregator[V, Any, tuple[Any, ...]]: ...
def tuple_(*aggregators: Any) -> Any:
    """Return the results of several aggregators as a tuple. State: a list of their states, equal ones once.

    >>> aggregate(agg.tuple_(agg.count(), agg.max()), [3, 1, 2])
    (3, 3)
    """
    if not aggregators:
        raise GraphError("agg.tuple_ needs at least one aggregator", location=location())
    return Several(tuple([checked_aggregator(it) for it in aggregators]))


def into(made: Callable[..., R], /, **aggregators: Aggregator[V, Any, Any]) -> Aggregator[V, Any, R]:
    """Return the results of several aggregators as an object: the results are the arguments of its class.

    State: a list of the states of the aggregators, equal ones once.

    Args:
        made: a dataclass, a named tuple, `dict`, or any other function of these arguments.
        aggregators: the aggregators by the names of the arguments.

    >>> aggregate(agg.into(dict, words=agg.count(), letters=agg.sum(len)), ["to", "be", "or", "not"])
    {'words': 4, 'letters': 9}
    """
    parts = [checked_aggregator(it) for it in aggregators.values()]
    names = tuple(aggregators)
    if not names:
        raise GraphError("agg.into needs at least one aggregator, under a name", location=location())
    odd = [name for name in names if not name.isidentifier() or iskeyword(name)]
    if odd:
        raise GraphError(f"agg.into passes results by name, and {odd[0]!r} is no name in Python", location=location())
    if not callable(made):
        raise GraphError(f"agg.into calls a class; got {label(made)}", location=location())
    _refuse_other_names(made, names)
    return Into(tuple(parts), made, names)


def _refuse_other_names(made: Callable[..., object], names: tuple[str, ...]) -> None:
    try:
        signature(made).bind(**dict.fromkeys(names))
    except TypeError as error:
        raise GraphError(
            f"agg.into calls {label(made)}({', '.join(f'{name}=...' for name in names)}), but {error}; it is "
            f"{label(made)}{signature(made)}",
            location=location(),
        ) from None
    except ValueError:  # its signature is unknown to Python
        return
