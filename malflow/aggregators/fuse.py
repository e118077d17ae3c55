"""Kernels: several aggregators compiled into one loop over the records.

Each aggregator is lowered to slots: an initial value, and the code that adds a record. Equal slots are shared, so
``sum`` and ``mean`` of one field add it once. Source code for a single loop over the records is generated from the
slots and compiled, with an accumulator that holds all of their states. This avoids a call for each record and
aggregator (loop fusion, as in query compilers after Neumann, 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from malflow.aggregators.checks import Watch
from malflow.aggregators.contract import Aggregator
from malflow.aggregators.definition import definition_of
from malflow.aggregators.fields import names_sent, read
from malflow.aggregators.generated import Source
from malflow.aggregators.slots import Slot, slotted
from malflow.callables import calls_nothing
from malflow.diagnostics import describe, location
from malflow.errors import GraphError
from malflow.records.columnar import is_columnar
from malflow.records.rows import ReadField, SomeFields
from malflow.words import short_repr

__all__ = ["Kernel", "checked_aggregator", "compile_kernel"]

Admit = Callable[[Any], object]

_EMPTY = object()


class _Columns(NamedTuple):
    """The fields that a kernel reads, row by row, as a tuple or, if there is only one, as it is."""

    rows: Iterable[Any]


# Invariant: an accumulator depends only on the records of its key and their order, not on how batches divide them.
#
# Example: ``sum("price")`` and ``mean("price")`` have two slots, the total and the count. In essence, the loop is
#   for key, value in zip(keys, values):
#       acc = accs[key]            # [total, count]
#       acc[0] += value["price"]   # once for both aggregators
#       acc[1] += 1
class Kernel:
    """Aggregators compiled into one loop, from generated source code, as in dataclasses.

    The accumulator of a key is the state of the only slot, or a list of the states of the slots; equal slots of several
    aggregators are stored once. The result is that of the only aggregator, or a tuple.

    Records are added one by one, in order, so the result does not depend on batching, not even in the last digit of a
    float. Fields given by name are items of the values if the first value is a mapping, and attributes otherwise.

    Args:
        aggregators: the aggregators.

    Attributes:
        gets_fields: whether records may arrive of which only the results of functions were sent, one by one as well:
            where others are whole, or somebody has looked at them.
    """

    refuses_nan = False
    """Whether NaN is rejected where numbers are summed or compared."""

    def __init__(self, aggregators: Sequence[Aggregator[Any, Any, Any]]) -> None:
        self.aggregators = tuple(aggregators)
        self._source = Source([slotted(it) for it in aggregators], refuses_nan=self.refuses_nan)
        self._loops: Mapping[str, Callable[..., Any]] | None = None
        self._fields = self._source.fields
        self._names = None if self._fields is None else names_sent(self._fields)
        self.gets_fields = False
        self._loops_of_columns: Mapping[str, Callable[..., Any]] | None = None
        self._source.learn_numpy()
        functions = self._source.compile("items")
        if not self._source.reads_fields:
            self._loops = functions
        self._result = functions["result"]
        self._results = functions["results"]
        self._merge: Callable[[Any, Any], Any] = functions.get("merge", self._cannot_merge)
        self._merge_by_key: Callable[[Any, Any], Any] = functions.get("merge_by_key", self._cannot_merge)

    @property
    def reads_names(self) -> bool:
        """Whether it reads fields by their names alone; columns as lists are enough then."""
        return self._fields is not None and all(isinstance(field, str) for field in self._fields)

    @property
    def fields(self) -> Mapping[str, ReadField] | None:
        """The fields that it reads, by the names of their columns; None if it reads more of the values.

        They can be read before the values are sent elsewhere: by name, by place, or by a function that calls no other.
        """
        fields, names = self._fields, self._names
        if fields is None or names is None or not all(isinstance(it, str | int) or calls_nothing(it) for it in fields):
            return None
        return MappingProxyType(dict(zip(names, fields, strict=True)))

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots of an accumulator, in their order."""
        return self._source.slots

    @property
    def can_merge(self) -> bool:
        """Whether accumulators can be merged."""
        return all(aggregator.can_merge for aggregator in self.aggregators)

    @property
    def definition(self) -> str:
        """The aggregators and the layout of accumulators, as a text that is the same in every run of a program."""
        return definition_of(self.aggregators)

    def add(
        self,
        accs: MutableMapping[Any, Any],
        keys: Iterable[Any],
        values: Iterable[Any],
        timestamps: Iterable[Any],
        admit: Admit | None = None,
    ) -> None:
        """Add each record to the accumulator of its key, in order.

        Args:
            accs: the accumulators by key; new keys are inserted.
            keys: the keys of the records.
            values: their values. An iterator is advanced one by one, so that its length hint locates the record at
                which a user's function failed.
            timestamps: their timestamps.
            admit: called with each new key before it is inserted.
        """
        loops, values = self._prepared(values)
        loops["add"](accs, keys, values, timestamps, admit)

    def each(
        self,
        accs: MutableMapping[Any, Any],
        keys: Iterable[Any],
        values: Iterable[Any],
        timestamps: Iterable[Any],
        admit: Admit | None = None,
    ) -> list[Any]:
        """Add each record as `add` does; return the result of its key after each of them."""
        loops, values = self._prepared(values)
        outcomes: list[Any] = loops["each"](accs, keys, values, timestamps, admit)
        return outcomes

    def begin(self, values: Sequence[Any]) -> tuple[Iterable[Any], Iterator[Any]]:
        """Return values for `add` and `each`, and an iterator with the number of values left as its length hint.

        Of columns, only those that are needed are read.
        """
        if self._names is not None and is_columnar(values):
            columns = [column for name in self._names if (column := values.column(name)) is not None]
            if len(columns) == len(self._names):
                first, *others = map(iter, columns or [range(len(values))])
                return _Columns(zip(first, *others, strict=True) if others else first), first
        rest = iter(values)
        if self.gets_fields and SomeFields in set(map(type, values)):
            return _Columns(map(self._fields_of, rest)), rest
        return rest, rest

    def _fields_of(self, value: Any) -> Any:
        """Return the fields of a value, or of a record of which only these were sent: functions were called before."""
        pairs = zip(self._names or (), self._fields or (), strict=True)
        found = [value[name] if type(value) is SomeFields else read(field, value) for name, field in pairs]
        return found[0] if len(found) == 1 else found

    def merge(self, one: Any, other: Any) -> Any:
        """Return the accumulator of the records of both, with `one` first; neither is changed.

        Raises:
            TypeError: if an aggregator can't merge.
        """
        return self._merge(one, other)

    def merge_by_key(self, one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
        """Merge the accumulators of each key, with `one` first; a key that only one side has keeps its own.

        Raises:
            TypeError: if an aggregator can't merge.
        """
        merged: dict[Any, Any] = self._merge_by_key(one, other)
        return merged

    def result(self, acc: Any) -> Any:
        """Return the result of an accumulator."""
        return self._result(acc)

    def results(self, accs: Iterable[Any]) -> list[Any]:
        """Return the result of each accumulator."""
        outcomes: list[Any] = self._results(accs)
        return outcomes

    def _prepared(self, values: Iterable[Any]) -> tuple[Mapping[str, Callable[..., Any]], Iterable[Any]]:
        """Return the loops and the values; compile the loops for the kind of the first value if necessary."""
        if self._source.learn_numpy():
            self._loops_of_columns = None
            self._loops = None if self._source.reads_fields else self._source.compile("items")
        if type(values) is _Columns:
            if self._loops_of_columns is None:
                self._loops_of_columns = self._source.compile("columns")
            return self._loops_of_columns, values.rows
        if self._loops is not None:
            return self._loops, values
        rest = iter(values)
        first = next(rest, _EMPTY)
        if first is _EMPTY:
            return self._source.compile("items"), rest
        self._loops = self._source.compile("items" if isinstance(first, Mapping) else "attributes")
        return self._loops, chain((first,), rest)

    def _cannot_merge(self, _one: Any, _other: Any) -> Any:
        raise TypeError(f"{self.definition} cannot be merged")

    def __repr__(self) -> str:
        return f"Kernel({self.definition})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the aggregators, from which the kernel is compiled again."""
        return type(self), (self.aggregators,)


class CheckedKernel(Kernel):
    """A kernel with additional, slow checks.

    It checks that no NaN is summed or compared, that ``merge`` and ``result`` keep to their contract, and that an
    accumulator, or a value in it, changes only while records are added.
    """

    refuses_nan = True

    def __init__(self, aggregators: Sequence[Aggregator[Any, Any, Any]]) -> None:
        super().__init__(aggregators)
        self._watch = Watch([slotted(it) for it in aggregators], self._source.slots)

    def add(
        self,
        accs: MutableMapping[Any, Any],
        keys: Iterable[Any],
        values: Iterable[Any],
        timestamps: Iterable[Any],
        admit: Admit | None = None,
    ) -> None:
        """Add each record to the accumulator of its key, in order."""
        for record in zip(keys, values, timestamps, strict=True):
            self._add_one(accs, record, admit)

    def each(
        self,
        accs: MutableMapping[Any, Any],
        keys: Iterable[Any],
        values: Iterable[Any],
        timestamps: Iterable[Any],
        admit: Admit | None = None,
    ) -> list[Any]:
        """Add each record; return the result of its key after each of them."""
        outcomes = []
        for record in zip(keys, values, timestamps, strict=True):
            self._add_one(accs, record, admit)
            outcomes.append(self.result(accs[record[0]]))
        return outcomes

    def _add_one(self, accs: MutableMapping[Any, Any], record: tuple[Any, Any, Any], admit: Admit | None) -> None:
        key, value, timestamp = record
        if key in accs:
            self._watch.verify(accs[key])
        super().add(accs, (key,), (value,), (timestamp,), admit)
        self._watch.note(accs[key])

    def begin(self, values: Sequence[Any]) -> tuple[Iterable[Any], Iterator[Any]]:
        """Return an iterator over the values, twice, since each value is checked separately."""
        rest = iter(values)
        return rest, rest

    def merge(self, one: Any, other: Any) -> Any:
        """Return the accumulator of the records of both; check that neither is mutated or returned."""
        self._watch.verify(one)
        self._watch.verify(other)
        merged = self._watch.unchanged("merge", lambda: super(CheckedKernel, self).merge(one, other), one, other)
        self._watch.check_aliases(merged, one, other)
        return merged

    def merge_by_key(self, one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
        """Merge the accumulators of each key, with the checks of `merge`."""
        both = {key: self.merge(one[key], acc) for key, acc in other.items() if key in one}
        return {**one, **other, **both}

    def result(self, acc: Any) -> Any:
        """Return the result of an accumulator; check that it is not mutated or returned."""
        self._watch.verify(acc)
        outcome = self._watch.unchanged("result", lambda: super(CheckedKernel, self).result(acc), acc)
        self._watch.check_given_out(acc)
        return outcome

    def results(self, accs: Iterable[Any]) -> list[Any]:
        """Return the result of each accumulator."""
        return [self.result(acc) for acc in accs]


def compile_kernel(
    aggregators: Sequence[Aggregator[Any, Any, Any]], *, debug: bool = False, workers: int = 1
) -> Kernel:
    """Compile aggregators into one loop.

    Args:
        aggregators: the aggregators.
        debug: whether to add slow checks: that ``merge`` and ``result`` keep to their contract, and that no NaN is
            summed or compared.
        workers: the number of workers that may send each other records.

    Raises:
        GraphError: if there are none, or one is not an aggregator.
    """
    if not aggregators:
        raise GraphError("no aggregator is given; write agg.count(), for example", location=location())
    checked = [checked_aggregator(it) for it in aggregators]
    kernel = CheckedKernel(checked) if debug else Kernel(checked)
    kernel.gets_fields = workers > 1 and not all(isinstance(field, str) for field in (kernel.fields or {}).values())
    return kernel


def checked_aggregator(given: Any) -> Aggregator[Any, Any, Any]:
    """Check that an argument is an aggregator, and return it."""
    if not isinstance(given, Aggregator):
        name = describe(given) if callable(given) else short_repr(given)
        raise GraphError(f"{name} is not an aggregator; {_instead(given)}", location=location())
    for method in ("create", "add", "result"):
        if getattr(type(given), method) is getattr(Aggregator, method):
            raise GraphError(f"the aggregator {given!r} has no method {method}()", location=location())
    return given


def _instead(given: Any) -> str:
    name = getattr(given, "__name__", None)
    if getattr(given, "__module__", None) == "malflow.agg":
        return f"call it: write agg.{name}(...)"
    if isinstance(given, type) and issubclass(given, Aggregator):
        return f"write {name}(...)"
    if isinstance(given, str):
        return f"write agg.sum({given!r}), or another function of malflow.agg"
    return "write agg.fold(create, add) for functions" if callable(given) else "write agg.count(), for example"
