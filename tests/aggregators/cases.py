"""Aggregators with a model each: what they are of the list of all records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from malflow import agg
from malflow.agg import Aggregator

Record = tuple[int, dict[str, Any]]
"""Timestamp and value."""


class Case(NamedTuple):
    """An aggregator and the result that it has to have.

    Attributes:
        name: its name in the report of a test.
        aggregator: the aggregator.
        model: makes the result of the records in the order of arrival.
        equal: whether a result is that of the model.
        ordered: whether the result depends on the order of arrival.
    """

    name: str
    aggregator: Aggregator[Any, Any, Any]
    model: Callable[[Sequence[Record]], Any]
    equal: Callable[[Any, Any], bool] = lambda got, expected: type(got) is type(expected) and got == expected
    ordered: bool = False


def column(name: str, records: Sequence[Record]) -> list[Any]:
    return [value[name] for _, value in records]


def sequential_sum(numbers: Sequence[Any]) -> Any:
    """Add from left to right; the built-in sum compensates for errors, in some versions of Python."""
    total = numbers[0]
    for number in numbers[1:]:
        total = total + number
    return total


def is_odd(value: dict[str, Any]) -> bool:
    return bool(value["i"] % 2)


def number_of(value: dict[str, Any]) -> int:
    return int(value["i"])


def about(got: Any, expected: Any) -> bool:
    """Whether two results are equal but for rounding."""
    return bool(abs(got - expected) <= 1e-12 * max(1.0, abs(expected)))


CASES = [
    Case("count", agg.count(), len),
    Case("count of some", agg.count(is_odd), lambda rs: sum(i % 2 for i in column("i", rs))),
    Case("count of a field", agg.count("i"), lambda rs: sum(i != 0 for i in column("i", rs))),
    Case("sum", agg.sum("i"), lambda rs: sum(column("i", rs))),
    Case("sum by a function", agg.sum(number_of), lambda rs: sum(column("i", rs))),
    Case("sum of floats", agg.sum("f"), lambda rs: sequential_sum(column("f", rs)), ordered=True),
    Case("sum of texts", agg.sum("s"), lambda rs: "".join(column("s", rs)), ordered=True),
    Case("min", agg.min("i"), lambda rs: min(column("i", rs))),
    Case("max", agg.max("f"), lambda rs: max(column("f", rs))),
    Case("mean", agg.mean("i"), lambda rs: sum(column("i", rs)) / len(rs)),
    Case("fold", agg.fold(int, lambda acc, value: acc + value["i"], int.__add__), lambda rs: sum(column("i", rs))),
    Case(
        "fold of a list",
        agg.fold(list, lambda acc, value, t: [*acc, (t, value["i"])], lambda one, other: one + other),
        lambda rs: [(t, value["i"]) for t, value in rs],
        ordered=True,
    ),
    Case(
        "into",
        agg.into(dict, n=agg.count(), total=agg.sum("i"), both=agg.tuple_(agg.min("i"), agg.mean("i"))),
        lambda rs: {
            "n": len(rs),
            "total": sum(column("i", rs)),
            "both": (min(column("i", rs)), sum(column("i", rs)) / len(rs)),
        },
    ),
]

case = st.sampled_from(CASES)
values = st.fixed_dictionaries(
    {
        "i": st.integers(-9, 9),
        "f": st.floats(-1e9, 1e9, allow_nan=False),
        "s": st.sampled_from("abc"),
    }
)
records = st.lists(st.tuples(st.integers(0, 20), values), min_size=1, max_size=12)
