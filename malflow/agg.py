"""Aggregators, which `aggregate` computes for each key, or for each key and window.

>>> from malflow import agg
>>> aggregate(agg.sum("amount"), [{"amount": 2}, {"amount": 3}])
5

Most functions take a field: the name of an item of a mapping or of an attribute of any other value, the place of an
item of a tuple, from 0, or a function of the value. Without it the value itself is aggregated. A missing field is an
error, and so is None in place of a number. With ``skip_none=True`` records with None in the field are skipped. If there
is no other record, a count is 0, a collection empty, and any other result None.

Several aggregators run as one generated loop, which computes equal parts once: `count`, `sum` and `mean` of a field
share one count and one sum. Records are added one by one in order of arrival.

In the examples, ``aggregate(aggregator, values)`` adds the values, at the timestamps 0, 1, 2, ..., and returns the
result.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from keyword import iskeyword
from typing import Any, TypeVar, overload

from malflow.aggregators.collected import Collect, CollectSet, CountDistinct, EstimateDistinct, MostFrequent, Top
from malflow.aggregators.composed import Fold, Into, Merged, Partial, Several
from malflow.aggregators.contract import Aggregator, label
from malflow.aggregators.extremes import First, Largest, Last, Max, MaxBy, Min, MinBy, Smallest
from malflow.aggregators.fields import checked_field, checked_whole_number
from malflow.aggregators.fuse import checked_aggregator
from malflow.aggregators.sketches import ExactQuantiles, Quantile, Quantiles
from malflow.aggregators.skipping import Skipping
from malflow.aggregators.slots import Slotted
from malflow.aggregators.sums import Count, Deviation, ExactSum, Mean, Sum, Variance
from malflow.callables import takes
from malflow.checks import check_flag, check_function, check_number, located
from malflow.diagnostics import location
from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = [
    "Aggregator",
    "collect",
    "collect_set",
    "count",
    "count_distinct",
    "exact_quantiles",
    "first",
    "fold",
    "fsum",
    "into",
    "largest",
    "last",
    "max",
    "max_by",
    "mean",
    "median",
    "merged",
    "min",
    "min_by",
    "partial",
    "quantile",
    "quantiles",
    "smallest",
    "stddev",
    "sum",
    "top",
    "tuple_",
    "variance",
]

V = TypeVar("V")
A = TypeVar("A")
N = TypeVar("N")
R = TypeVar("R")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R4 = TypeVar("R4")
R5 = TypeVar("R5")


@overload
def count() -> Aggregator[object, int, int]: ...
@overload
def count(predicate: Callable[[V], object]) -> Aggregator[V, int, int]: ...
@overload
def count(predicate: str | int) -> Aggregator[Any, int, int]: ...
@overload
def count(predicate: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def count(predicate: Any = None, *, skip_none: bool = False) -> Any:
    """Count the records, or those that satisfy a predicate. State: an integer.

    Args:
        predicate: a function of the value, or a field; records for which it is false, zero, empty or None are not
            counted.
        skip_none: whether to count all records with another value than None, also false and zero ones.

    >>> aggregate(agg.count(), "abc"), aggregate(agg.count(str.isupper), "aBC")
    (3, 2)
    >>> aggregate(agg.count("n", skip_none=True), [{"n": 0}, {"n": None}, {"n": 2}])
    2
    """
    field = checked_field("agg.count", predicate, "predicate")
    return Skipping(Count(), field) if _is_flag("agg.count", skip_none) else Count(field)


@overload
def sum(field: Callable[[V], int], *, of: type[int]) -> Aggregator[V, Any, int]: ...
@overload
def sum(field: str | int = ..., *, of: type[int]) -> Aggregator[Any, Any, int]: ...
@overload
def sum(field: Callable[[V], N]) -> Aggregator[V, Any, N]: ...
@overload
def sum(field: str | int = ...) -> Aggregator[Any, Any, Any]: ...
@overload
def sum(field: Any = ..., *, of: Any = ..., skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def sum(field: Any = None, *, of: Any = None, skip_none: bool = False) -> Any:
    """Add up a field: numbers, timedeltas, or any other type with ``+`` except text. State: the sum.

    Floats are added one by one, in order of arrival; the error is at most n * 1.1e-16 times the sum of magnitudes. See
    `fsum` for an exact sum.

    Args:
        field: the field.
        of: ``int`` if all values are integers, or truth values (0 or 1); any other value is then an error. Windows may
            add such sums up before records are sent to the worker of their key.
        skip_none: whether to skip records with None in the field.

    >>> aggregate(agg.sum(len), ["a", "bcd"])
    4
    >>> aggregate(agg.sum("amount", of=int), [{"amount": 2}, {"amount": 3}])
    5
    >>> aggregate(agg.sum(1, skip_none=True), [("a", 2), ("b", None), ("c", 3)])
    5
    """
    return _skipping("agg.sum", Sum(checked_field("agg.sum", field), _checked_type("agg.sum", of)), field, skip_none)


@overload
def min(field: Callable[[V], N]) -> Aggregator[V, Any, N]: ...
@overload
def min(field: str | int = ...) -> Aggregator[Any, Any, Any]: ...
@overload
def min(field: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def min(field: Any = None, *, skip_none: bool = False) -> Any:
    """Return the least value of a field; of equal values, the first to arrive. State: this value.

    Text is compared character by character, so "10" is less than "9": convert numbers that were read as text.

    >>> aggregate(agg.min(), [3, 1, 2])
    1
    """
    return _skipping("agg.min", Min(checked_field("agg.min", field)), field, skip_none)


@overload
def max(field: Callable[[V], N]) -> Aggregator[V, Any, N]: ...
@overload
def max(field: str | int = ...) -> Aggregator[Any, Any, Any]: ...
@overload
def max(field: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def max(field: Any = None, *, skip_none: bool = False) -> Any:
    """Return the greatest value of a field; of equal values, the first to arrive. State: this value.

    Text is compared character by character, so "10" is less than "9": convert numbers that were read as text.

    >>> aggregate(agg.max(), [3, 1, 2])
    3
    """
    return _skipping("agg.max", Max(checked_field("agg.max", field)), field, skip_none)


@overload
def mean(field: Callable[[V], int], *, of: type[int] | None = None) -> Aggregator[V, Any, float]: ...
@overload
def mean(field: str | int = ..., *, of: type[int]) -> Aggregator[Any, Any, float]: ...
@overload
def mean(field: Callable[[V], N]) -> Aggregator[V, Any, N]: ...
@overload
def mean(field: str | int = ...) -> Aggregator[Any, Any, Any]: ...
@overload
def mean(field: Any = ..., *, of: Any = ..., skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def mean(field: Any = None, *, of: Any = None, skip_none: bool = False) -> Any:
    """Return the arithmetic mean of a field, with the precision of `sum`. State: a count and a sum.

    Args:
        field: the field.
        of: ``int`` if all values are integers, as for `sum`.
        skip_none: whether to skip records with None in the field.

    >>> aggregate(agg.mean("amount"), [{"amount": 2}, {"amount": 3}])
    2.5
    """
    return _skipping(
        "agg.mean", Mean(checked_field("agg.mean", field), _checked_type("agg.mean", of)), field, skip_none
    )


def _skipping(asked_by: str, aggregator: Slotted[Any, Any, Any], field: Any, skip_none: bool) -> Any:
    """Return the aggregator, without the records that have None in the field if these are to be skipped."""
    return Skipping(aggregator, field) if _is_flag(asked_by, skip_none) else aggregator


def _is_flag(asked_by: str, skip_none: bool) -> bool:
    check_flag(located(asked_by), "skip_none", skip_none)
    return skip_none


def _checked_type(asked_by: str, of: Any) -> type[int] | None:
    if of is not None and of is not int:
        raise GraphError(f"{asked_by} takes of=int, or no 'of'; got {short_repr(of)}", location=location())
    return None if of is None else int


@overload
def variance(field: Callable[[V], int], *, ddof: int = 1) -> Aggregator[V, Any, float | None]: ...
@overload
def variance(field: Callable[[V], N], *, ddof: int = 1) -> Aggregator[V, Any, N | None]: ...
@overload
def variance(field: str | int = ..., *, ddof: int = 1) -> Aggregator[Any, Any, Any]: ...
@overload
def variance(field: Any = ..., *, ddof: int = ..., skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def variance(field: Any = None, *, ddof: int = 1, skip_none: bool = False) -> Any:
    """Return the variance of a field; None for fewer than ``ddof + 1`` records. State: [count, mean, squares].

    Args:
        field: the field, of numbers.
        ddof: 1 for the sample variance, an estimate for the population; 0 for the variance of the records themselves.
        skip_none: whether to skip records with None in the field.

    Sources: Welford, "Note on a method for calculating corrected sums of squares and products", 1962; to merge, Chan,
        Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979. Large
        squares are not subtracted from each other, so few digits are lost. The order of arrival changes only the last
        digits.

    >>> aggregate(agg.variance(), [1e9 + 1, 1e9 + 2, 1e9 + 3])
    1.0
    """
    return _skipping(
        "agg.variance",
        Variance(checked_field("agg.variance", field), checked_whole_number("agg.variance", "ddof", ddof, 0)),
        field,
        skip_none,
    )


@overload
def stddev(field: Callable[[V], Any], *, ddof: int = 1) -> Aggregator[V, Any, float | None]: ...
@overload
def stddev(field: str | int = ..., *, ddof: int = 1) -> Aggregator[Any, Any, float | None]: ...
@overload
def stddev(field: Any = ..., *, ddof: int = ..., skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def stddev(field: Any = None, *, ddof: int = 1, skip_none: bool = False) -> Any:
    """Return the standard deviation of a field, a float: the square root of its `variance`. Both share one state.

    >>> aggregate(agg.stddev(ddof=0), [1, 3])
    1.0
    """
    return _skipping(
        "agg.stddev",
        Deviation(checked_field("agg.stddev", field), checked_whole_number("agg.stddev", "ddof", ddof, 0)),
        field,
        skip_none,
    )


@overload
def fsum(field: Callable[[V], float]) -> Aggregator[V, Any, float]: ...
@overload
def fsum(field: str | int = ...) -> Aggregator[Any, Any, float]: ...
@overload
def fsum(field: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def fsum(field: Any = None, *, skip_none: bool = False) -> Any:
    """Add up floats and integers without rounding, and return the float nearest to the sum, as `math.fsum` does.

    The result does not depend on the order of arrival. It takes several times as long as `sum`. Infinity, NaN and sums
    too large for a float are errors.

    State: the sum in units of the least float, an integer of up to 2,100 bits. Source: Kulisch, "Computer Arithmetic
        and Validity", 2008.

    >>> aggregate(agg.fsum(), [1e16, 1.0, -1e16]), aggregate(agg.sum(), [1e16, 1.0, -1e16])
    (1.0, 0.0)
    """
    return _skipping("agg.fsum", ExactSum(checked_field("agg.fsum", field)), field, skip_none)


@overload
def min_by(field: str | int) -> Aggregator[Any, Any, Any]: ...
@overload
def min_by(field: Callable[[V], Any]) -> Aggregator[V, Any, V]: ...
@overload
def min_by(field: Any, *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def min_by(field: Any, *, skip_none: bool = False) -> Any:
    """Return the value with the least field; of equal ones the earliest, and of these the first to arrive.

    State: the field, the timestamp and the value. Don't change the value afterwards.

    >>> aggregate(agg.min_by("n"), [{"n": 3, "id": "a"}, {"n": 1, "id": "b"}, {"n": 1, "id": "c"}])
    {'n': 1, 'id': 'b'}
    """
    return _skipping("agg.min_by", MinBy(checked_field("agg.min_by", field)), field, skip_none)


@overload
def max_by(field: str | int) -> Aggregator[Any, Any, Any]: ...
@overload
def max_by(field: Callable[[V], Any]) -> Aggregator[V, Any, V]: ...
@overload
def max_by(field: Any, *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def max_by(field: Any, *, skip_none: bool = False) -> Any:
    """Return the value with the greatest field; of equal ones the earliest, and of these the first to arrive.

    State: the field, the timestamp and the value. Don't change the value afterwards.

    >>> aggregate(agg.max_by(len), ["to", "you", "and"])
    'you'
    """
    return _skipping("agg.max_by", MaxBy(checked_field("agg.max_by", field)), field, skip_none)


@overload
def first(field: Callable[[V], N]) -> Aggregator[V, Any, N]: ...
@overload
def first(field: str | int = ...) -> Aggregator[Any, Any, Any]: ...
@overload
def first(field: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def first(field: Any = None, *, skip_none: bool = False) -> Any:
    """Return a field of the record with the least timestamp; of several such records, the first to arrive.

    State: the timestamp and the field.

    >>> aggregate(agg.first(), "abc")
    'a'
    """
    return _skipping("agg.first", First(checked_field("agg.first", field)), field, skip_none)


@overload
def last(field: Callable[[V], N]) -> Aggregator[V, Any, N]: ...
@overload
def last(field: str | int = ...) -> Aggregator[Any, Any, Any]: ...
@overload
def last(field: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def last(field: Any = None, *, skip_none: bool = False) -> Any:
    """Return a field of the record with the greatest timestamp; of several such records, the last to arrive.

    State: the timestamp and the field.

    >>> aggregate(agg.last(), "abc")
    'c'
    """
    return _skipping("agg.last", Last(checked_field("agg.last", field)), field, skip_none)


@overload
def count_distinct(field: Callable[[V], Any], *, approximate: bool = False) -> Aggregator[V, Any, int]: ...
@overload
def count_distinct(field: str | int = ..., *, approximate: bool = False) -> Aggregator[Any, Any, int]: ...
@overload
def count_distinct(field: Any = ..., *, approximate: bool = ..., skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def count_distinct(field: Any = None, *, approximate: bool = False, skip_none: bool = False) -> Any:
    """Count the distinct values of a field. They must be hashable; values equal in Python count once.

    Args:
        field: the field.
        approximate: whether to estimate the count. Up to 1,024 values the estimate is exact; beyond, its standard error
            is 3 %. The values must then have a stable hash, as keys do.
        skip_none: whether to skip records with None in the field.

    State: the set of values; if approximate, the 1,024 least 64-bit hashes of values (k minimum values). The estimate
        does not depend on the order of values.

    Source: Bar-Yossef et al., "Counting distinct elements in a data stream", 2002.

    >>> aggregate(agg.count_distinct(), [1, 1.0, True, 2])
    2
    >>> abs(aggregate(agg.count_distinct(approximate=True), range(10_000)) - 10_000) < 1_000
    True
    """
    kind = EstimateDistinct if approximate else CountDistinct
    return _skipping("agg.count_distinct", kind(checked_field("agg.count_distinct", field)), field, skip_none)


@overload
def quantiles(field: str | int, /, *fractions: float) -> Aggregator[Any, Any, tuple[float, ...]]: ...
@overload
def quantiles(field: Callable[[V], Any] | None, /, *fractions: float) -> Aggregator[V, Any, tuple[float, ...]]: ...
@overload
def quantiles(field: Any, /, *fractions: Any, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def quantiles(field: Any, /, *fractions: Any, skip_none: bool = False) -> Any:
    """Estimate quantiles of a field of numbers, each with a relative error of at most 1 %.

    The quantile ``q`` of ``n`` numbers is the one with rank ``ceil(q * n)`` in sorted order: at least a fraction ``q``
    of them does not exceed it. An estimate is never below the least number, nor above the greatest.

    Args:
        field: the field; None for the value itself.
        fractions: the quantiles, from 0 to 1.
        skip_none: whether to skip records with None in the field.

    State: the least number, the greatest, and the count in each bucket. The bounds of the buckets are the powers of
        1.0202: 115 buckets for each factor of ten. The estimates do not depend on the order of arrival.

    Source: Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees",
    2019.

    >>> [round(it) for it in aggregate(agg.quantiles(None, 0.5, 0.99), range(1, 1001))]
    [498, 983]
    """
    _check_fractions("agg.quantiles", fractions)
    return _skipping("agg.quantiles", Quantiles(checked_field("agg.quantiles", field), fractions), field, skip_none)


@overload
def quantile(field: Callable[[V], Any], /, fraction: float) -> Aggregator[V, Any, float]: ...
@overload
def quantile(field: str | int | None, /, fraction: float) -> Aggregator[Any, Any, float]: ...
@overload
def quantile(field: Any, /, fraction: Any, *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def quantile(field: Any, /, fraction: Any, *, skip_none: bool = False) -> Any:
    """Estimate one quantile of a field of numbers, as `quantiles` does; the result is a number, not a tuple.

    >>> round(aggregate(agg.quantile(None, 0.99), [1, 1000]))
    1000
    """
    _check_fractions("agg.quantile", (fraction,))
    return _skipping("agg.quantile", Quantile(checked_field("agg.quantile", field), fraction), field, skip_none)


@overload
def exact_quantiles(field: Callable[[V], N], /, *fractions: float) -> Aggregator[V, Any, tuple[N, ...]]: ...
@overload
def exact_quantiles(field: str | int | None, /, *fractions: float) -> Aggregator[Any, Any, tuple[Any, ...]]: ...
@overload
def exact_quantiles(field: Any, /, *fractions: Any, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def exact_quantiles(field: Any, /, *fractions: Any, skip_none: bool = False) -> Any:
    """Return exact quantiles of a field: for each fraction, the value with rank ``ceil(q * n)``.

    Args:
        field: the field; None for the value itself. Numbers, or any other ordered and hashable type except text.
        fractions: the quantiles, from 0 to 1.
        skip_none: whether to skip records with None in the field.

    State: the count of each distinct value. See `quantiles` for estimates with a small state.

    >>> aggregate(agg.exact_quantiles(None, 0.5, 0.99), range(1, 1001))
    (500, 990)
    """
    _check_fractions("agg.exact_quantiles", fractions)
    return _skipping(
        "agg.exact_quantiles", ExactQuantiles(checked_field("agg.exact_quantiles", field), fractions), field, skip_none
    )


def _check_fractions(asked_by: str, fractions: tuple[Any, ...]) -> None:
    if not fractions:
        raise GraphError(f"{asked_by} needs a fraction such as 0.5 after the field", location=location())
    for fraction in fractions:
        check_number(located(asked_by), "fraction", fraction, least=0, most=1)


@overload
def median(field: Callable[[V], Any]) -> Aggregator[V, Any, float]: ...
@overload
def median(field: str | int = ...) -> Aggregator[Any, Any, float]: ...
@overload
def median(field: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def median(field: Any = None, *, skip_none: bool = False) -> Any:
    """Estimate the median of a field of numbers: see `quantiles`. For an even count, it is the lower median.

    >>> round(aggregate(agg.median(), [1, 100, 10_000]))
    100
    """
    return _skipping("agg.median", Quantile(checked_field("agg.median", field), 0.5, "agg.median"), field, skip_none)


@overload
def largest(n: int, field: Callable[[V], N]) -> Aggregator[V, Any, tuple[N, ...]]: ...
@overload
def largest(n: int, field: str | int = ...) -> Aggregator[Any, Any, tuple[Any, ...]]: ...
@overload
def largest(n: int, field: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def largest(n: int, field: Any = None, *, skip_none: bool = False) -> Any:
    """Return the `n` greatest values of a field, in descending order; fewer if there are fewer records.

    State: a list of them. See `top` for the most frequent values.

    >>> aggregate(agg.largest(2), [3, 1, 4, 1, 5])
    (5, 4)
    """
    return _skipping(
        "agg.largest",
        Largest(checked_whole_number("agg.largest", "n", n), checked_field("agg.largest", field)),
        field,
        skip_none,
    )


@overload
def smallest(n: int, field: Callable[[V], N]) -> Aggregator[V, Any, tuple[N, ...]]: ...
@overload
def smallest(n: int, field: str | int = ...) -> Aggregator[Any, Any, tuple[Any, ...]]: ...
@overload
def smallest(n: int, field: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def smallest(n: int, field: Any = None, *, skip_none: bool = False) -> Any:
    """Return the `n` least values of a field, in ascending order; fewer if there are fewer records. State: a list.

    >>> aggregate(agg.smallest(2), [3, 1, 4, 1, 5])
    (1, 1)
    """
    return _skipping(
        "agg.smallest",
        Smallest(checked_whole_number("agg.smallest", "n", n), checked_field("agg.smallest", field)),
        field,
        skip_none,
    )


@overload
def top(
    n: int, field: Callable[[V], N], *, capacity: int | None = None
) -> Aggregator[V, Any, tuple[tuple[N, int], ...]]: ...
@overload
def top(
    n: int, field: str | int = ..., *, capacity: int | None = None
) -> Aggregator[Any, Any, tuple[tuple[Any, int], ...]]: ...
@overload
def top(n: int, field: Any = ..., *, capacity: Any = ..., skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def top(n: int, field: Any = None, *, capacity: Any = None, skip_none: bool = False) -> Any:
    """Return the `n` most frequent values of a field with their counts; values with equal counts in order of arrival.

    See `largest` for the greatest values.

    Args:
        n: how many values.
        field: the field; its values must be hashable.
        capacity: the maximum number of values with a counter; by default all values are counted, exactly. With a
            capacity, every value that makes up at least one in `capacity` records has a counter. A count may be too
            great, by at most the number of records divided by `capacity`, but never too small. The result depends on
            the order of arrival.
        skip_none: whether to skip records with None in the field.

    State: the counts by value. With a capacity, adding a value without a counter takes O(capacity).

    Sources: Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams",
    2005; to merge, Agarwal et al., "Mergeable summaries", 2012.

    >>> aggregate(agg.top(2), "abracadabra")
    (('a', 5), ('b', 2))
    """
    checked_whole_number("agg.top", "n", n)
    checked_field("agg.top", field)
    if capacity is None:
        return _skipping("agg.top", Top(n, field), field, skip_none)
    most = checked_whole_number("agg.top", "capacity", capacity, n)
    return _skipping("agg.top", MostFrequent(n, field, most), field, skip_none)


@overload
def collect(field: Callable[[V], N]) -> Aggregator[V, Any, tuple[N, ...]]: ...
@overload
def collect(field: str | int = ...) -> Aggregator[Any, Any, tuple[Any, ...]]: ...
@overload
def collect(field: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def collect(field: Any = None, *, skip_none: bool = False) -> Any:
    """Return a field of all records in order of arrival, as a tuple. State: a list; its items must not be mutated.

    Where accumulators are merged, as in sliding windows, sessions, rollups and cogroups, the records of the earlier
    part precede the others; each part is in order of arrival.

    >>> aggregate(agg.collect(str.upper), "abc")
    ('A', 'B', 'C')
    """
    return _skipping("agg.collect", Collect(checked_field("agg.collect", field)), field, skip_none)


@overload
def collect_set(field: Callable[[V], N]) -> Aggregator[V, Any, frozenset[N]]: ...
@overload
def collect_set(field: str | int = ...) -> Aggregator[Any, Any, frozenset[Any]]: ...
@overload
def collect_set(field: Any = ..., *, skip_none: bool) -> Aggregator[Any, Any, Any]: ...
def collect_set(field: Any = None, *, skip_none: bool = False) -> Any:
    """Return the distinct (hashable) values of a field as a frozenset. State: a set.

    >>> aggregate(agg.collect_set(), "aab") == {"a", "b"}
    True
    """
    return _skipping("agg.collect_set", CollectSet(checked_field("agg.collect_set", field)), field, skip_none)


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
    """Aggregate with functions. State: the accumulator that they return.

    Args:
        create: returns an empty accumulator.
        add: ``(accumulator, value)``, or ``(accumulator, value, timestamp)``: returns the accumulator, either mutated
            in place or a new one.
        merge: ``(one, other)``: returns a new accumulator for the values of both, with `one` first, and mutates
            neither. Sliding windows and sessions need it.
        result: returns the result of an accumulator, but not the accumulator itself. By default, a deep copy.

    >>> aggregate(agg.fold(str, lambda text, word, timestamp: f"{text}{timestamp}{word} "), ["to", "be"])
    '0to 1be '
    """
    asked_by = located("agg.fold")
    timed = callable(add) and not takes(add, 2) and takes(add, 3)
    check_function(asked_by, "create", create, arguments="")
    check_function(asked_by, "add", add, arguments=f"accumulator, value{', timestamp' if timed else ''}")
    if merge is not None:
        check_function(asked_by, "merge", merge, arguments="one, other")
    if result is not None:
        check_function(asked_by, "result", result, arguments="accumulator")
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
def tuple_(
    one: Aggregator[V, Any, Any],
    two: Aggregator[V, Any, Any],
    three: Aggregator[V, Any, Any],
    four: Aggregator[V, Any, Any],
    five: Aggregator[V, Any, Any],
    six: Aggregator[V, Any, Any],
    /,
    *more: Aggregator[V, Any, Any],
) -> Aggregator[V, Any, tuple[Any, ...]]: ...
def tuple_(*aggregators: Any) -> Any:
    """Return the results of several aggregators as a tuple. State: a list of their states, without duplicates.

    >>> aggregate(agg.tuple_(agg.count(), agg.max()), [3, 1, 2])
    (3, 3)
    """
    if not aggregators:
        raise GraphError("agg.tuple_ needs at least one aggregator", location=location())
    return Several(tuple([checked_aggregator(it) for it in aggregators]))


def into(made: Callable[..., R], /, **aggregators: Aggregator[V, Any, Any]) -> Aggregator[V, Any, R]:
    """Return the results of several aggregators as an object: they are the arguments of its class.

    State: a list of the states of the aggregators, without duplicates.

    Args:
        made: a dataclass, a named tuple, `dict`, or any other function of these arguments.
        aggregators: the aggregators, by argument name.

    >>> aggregate(agg.into(dict, words=agg.count(), letters=agg.sum(len)), ["to", "be", "or", "not"])
    {'words': 4, 'letters': 9}
    """
    parts = [checked_aggregator(it) for it in aggregators.values()]
    names = tuple(aggregators)
    if not names:
        raise GraphError("agg.into needs at least one aggregator, under a name", location=location())
    odd = [name for name in names if not name.isidentifier() or iskeyword(name)]
    if odd:
        raise GraphError(f"agg.into passes results by name; {odd[0]!r} is not a Python identifier", location=location())
    if not callable(made):
        raise GraphError(f"agg.into needs a class or function; got {label(made)}", location=location())
    _check_names(made, names)
    return Into(tuple(parts), made, names)


def _check_names(made: Callable[..., object], names: tuple[str, ...]) -> None:
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


def partial(aggregator: Aggregator[V, A, Any], /) -> Aggregator[V, A, A]:
    """Return the accumulator of an aggregator as its result, for aggregation in stages that ends with `merged`.

    A mean of means is not the mean of all values, but merging the accumulators of means yields it. State: the
    aggregator's.

    >>> hours = [aggregate(agg.partial(agg.mean()), values) for values in ([1, 2, 3], [10])]
    >>> hours
    [[3, 6], [1, 10]]
    >>> aggregate(agg.merged(agg.mean()), hours)
    4.0
    """
    return Partial(checked_aggregator(aggregator))


def merged(aggregator: Aggregator[Any, A, R], /) -> Aggregator[A, A, R]:
    """Return the result of an aggregator for values that are its accumulators: see `partial`.

    State: the aggregator's.

    Raises:
        GraphError: if its accumulators cannot be merged.
    """
    if not checked_aggregator(aggregator).can_merge:
        raise GraphError(f"agg.merged needs an aggregator that can merge; {aggregator!r} cannot", location=location())
    return Merged(aggregator)
