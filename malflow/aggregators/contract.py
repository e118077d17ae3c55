"""The contract of an aggregator, and the names of functions in its definition."""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, TypeVar

__all__ = [
    "Aggregator",
    "call",
    "label",
]


def label(thing: Any) -> str:
    """Return a text for a function or another argument that is the same in every run of a program.

    >>> label(len), label(lambda value: 1), label("amount"), label(partial(round, 1))
    ('len', '<lambda>', "'amount'", 'partial(round, 1)')
    """
    if isinstance(thing, partial):
        options = [f"{name}={label(it)}" for name, it in thing.keywords.items()]
        return f"partial({', '.join([label(thing.func), *map(label, thing.args), *options])})"
    name = getattr(thing, "__qualname__", None)
    if isinstance(name, str):
        return name.rpartition("<locals>.")[2]
    text = repr(thing)
    return type(thing).__qualname__ if " at 0x" in text else text


def call(function: str, *arguments: Any, **options: Any) -> str:
    """Return the text of a call without arguments that are None.

    >>> call("agg.sum", "amount"), call("agg.count", None), call("agg.variance", len, ddof=0)
    ("agg.sum('amount')", 'agg.count()', 'agg.variance(len, ddof=0)')
    """
    given = [label(it) for it in arguments if it is not None]
    named = [f"{name}={label(it)}" for name, it in options.items() if it is not None]
    return f"{function}({', '.join(given + named)})"


V_contra = TypeVar("V_contra", contravariant=True)
A = TypeVar("A")
R_co = TypeVar("R_co", covariant=True)


class Aggregator(Generic[V_contra, A, R_co]):
    """Combines any number of values into one result, through an accumulator of plain data.

    Derive from it for an aggregation that `malflow.agg` does not offer; `malflow.agg.fold` does the same with
    functions. An instance must not change, since all workers share it: keep mutable data in the accumulator. Snapshots
    save it.

    Windows that overlap or merge, such as sliding windows and sessions, need ``merge``. It must be associative, and
    ``merge(create(), a)`` equal to ``a``.

    Attributes:
        exact: whether merging an accumulator of consecutive records equals adding these records, in value and type. If
            so, windows may add records up before they are sent to the worker of their key. Sums of floats are not
            exact, since they depend on the order of additions.

    In the examples, ``aggregate(aggregator, values)`` adds the values, at the timestamps 0, 1, 2, ..., and returns the
    result.

    >>> class Longest(Aggregator[str, int, int]):
    ...     def create(self):
    ...         return 0
    ...     def add(self, acc, value, timestamp):
    ...         return max(acc, len(value))
    ...     def merge(self, one, other):
    ...         return max(one, other)
    ...     def result(self, acc):
    ...         return acc
    >>> aggregate(Longest(), ["to", "be", "or", "not"])
    3
    """

    exact = False

    def create(self) -> A:
        """Return an empty accumulator."""
        raise NotImplementedError

    def add(self, acc: A, value: V_contra, timestamp: Any) -> A:
        """Add a record's value and return the accumulator: `acc` itself, mutated in place, or a new one."""
        raise NotImplementedError

    def merge(self, one: A, other: A) -> A:
        """Return the accumulator of the values of both, `one` before `other`.

        It must mutate neither, since windows share accumulators; nor return one of them, unless accumulators are
        immutable.
        """
        raise NotImplementedError

    def result(self, acc: A) -> R_co:
        """Return the result; it must not be the accumulator itself, unless that is immutable."""
        raise NotImplementedError

    @property
    def can_merge(self) -> bool:
        """Whether accumulators can be merged."""
        return type(self).merge is not Aggregator.merge

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={label(it)}' for name, it in vars(self).items())})"
