"""Keyed state whose entries expire with event time."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Generic, TypeVar, overload

from malflow.diagnostics import shape_error
from malflow.errors import OperatorError, failures, settled_failures
from malflow.event_time.timers import Timers
from malflow.message import MIN
from malflow.operators.contract import OperatorContext
from malflow.operators.failures.guard import Guard, Record
from malflow.operators.failures.surviving import SparesStates, completed, without
from malflow.records.batch import Batch
from malflow.states.apart import apart
from malflow.states.keyed import ATOMIC_TYPES, Delta, KeyedState
from malflow.words import short_repr

__all__ = ["ExpireMap", "TtlMap", "checked_map"]

UK = TypeVar("UK")
S = TypeVar("S")
T = TypeVar("T")
D = TypeVar("D")

_SLACK = 8
"""Stale entries that are always tolerated, so that a small heap is not rebuilt again and again."""


class ExpireMap(Generic[UK, S, T]):
    """A map with an expiry for each entry: a timestamp of any ordered type.

    An entry past its expiry stays readable until `expire` is called; in a `ttl_map`, each epoch calls it.

    >>> entries = ExpireMap()
    >>> entries.insert("a", 1, 10)
    >>> entries.insert("a", 2, 20)
    1
    >>> entries.expire(15), entries.get("a")
    ([], 2)
    >>> entries.expire(20), entries.is_empty()
    ([('a', 2)], True)
    """

    __slots__ = ("_count", "_entries", "_lent", "_order", "_seen")

    def __init__(self) -> None:
        self._entries: dict[UK, tuple[S, T]] = {}
        self._order: list[tuple[T, int, UK, tuple[S, T]]] = []  # a replaced entry stays for a while
        self._count = 0
        self._seen = -1
        self._lent: list[Any] | None = None  # where a ttl_map wants to see the values that may change in place

    def insert(self, key: UK, value: S, expiry: T) -> S | None:
        """Set a value and its expiry; return the previous value, or None."""
        before = self._entries.pop(key, None)  # the entries are in insertion order
        self._entries[key] = entry = (value, expiry)
        if self._lent is not None and type(value) not in ATOMIC_TYPES:
            self._lent.append(value)
        self._count += 1
        heappush(self._order, (expiry, self._count, key, entry))
        self._prune()
        return None if before is None else before[0]

    @overload
    def get(self, key: UK) -> S | None: ...
    @overload
    def get(self, key: UK, default: D) -> S | D: ...
    def get(self, key: UK, default: Any = None) -> Any:
        """Return the value of a key, or `default` if it has none."""
        entry = self._entries.get(key)
        if entry is None:
            return default
        value = entry[0]
        if self._lent is not None and type(value) not in ATOMIC_TYPES:
            self._lent.append(value)
        return value

    def remove(self, key: UK) -> S | None:
        """Drop an entry before its expiry; return its value, or None."""
        entry = self._entries.pop(key, None)
        self._prune()
        return None if entry is None else entry[0]

    def expire(self, until: T) -> list[tuple[UK, S]]:
        """Remove the entries with an expiry at or before `until`; return their keys and values.

        They are in the order of their expiry; entries with the same expiry, in insertion order.
        """
        order, entries, removed = self._order, self._entries, []
        while order and order[0][0] <= until:  # type: ignore[operator] # any ordered type
            _, _, key, entry = heappop(order)
            if entries.get(key) is entry:
                del entries[key]
                removed.append((key, entry[0]))
        self._prune()
        return removed

    def is_empty(self) -> bool:
        """Whether there are no entries."""
        return not self._entries

    @property
    def earliest(self) -> Any:
        """The earliest expiry; `MIN` when the map is empty."""
        order, entries = self._order, self._entries
        while order and entries.get(order[0][2]) is not order[0][3]:
            heappop(order)
        return order[0][0] if order else MIN

    def spare(self) -> ExpireMap[UK, S, T]:
        """Return a copy with copies of the values; a change to either has no effect on the other.

        >>> entries = ExpireMap()
        >>> entries.insert("a", [1], 10)
        >>> other = entries.spare()
        >>> other.get("a").append(2), other.remove("a"), entries.get("a")
        (None, [1, 2], [1])
        """
        if not ATOMIC_TYPES.issuperset(type(value) for value, _ in self._entries.values()):
            other = copy.deepcopy(self)
            other._lent = self._lent
            return other
        other = ExpireMap()
        other._entries, other._order = self._entries.copy(), self._order.copy()
        other._count, other._seen, other._lent = self._count, self._seen, self._lent
        return other

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[UK]:
        return iter(tuple(self._entries))  # an insertion meanwhile moves its key to the end

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __eq__(self, other: object) -> bool:
        return self._entries == other._entries if isinstance(other, ExpireMap) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # it is mutable

    def __repr__(self) -> str:
        return f"ExpireMap({self._entries!r})"

    def __getstate__(self) -> dict[UK, tuple[S, T]]:
        """Pickle the entries in insertion order, from which the order of expiry is derived."""
        return self._entries

    def __setstate__(self, entries: dict[UK, tuple[S, T]]) -> None:
        """Load the entries and order them."""
        self._entries = dict(entries)
        self._seen = -1
        self._lent = None
        self._reorder()

    def _prune(self) -> None:
        """Drop replaced and removed entries once they make up most of the heap."""
        if len(self._order) > 2 * len(self._entries) + _SLACK:
            self._reorder()

    def _reorder(self) -> None:
        self._order = [(entry[1], count, key, entry) for count, (key, entry) in enumerate(self._entries.items())]
        self._count = len(self._order)
        heapify(self._order)


def checked_map(state: Any) -> ExpireMap[Any, Any, Any] | None:
    """Check the map that a migration returned, and return it; None, to drop the key, if it is empty.

    Raises:
        TypeError: if it is not an `ExpireMap` or None.
    """
    if not isinstance(state, ExpireMap | None):
        raise TypeError(f"it must return an ExpireMap or None; got {short_repr(state)}")
    return None if state is None or state.is_empty() else state


class TtlMap(SparesStates):
    """Replace each value with the mapper's result for it and its key's `ExpireMap`; each epoch expires entries.

    An epoch is only recorded. A map is expired when its key is next read; at the end of the batch, due maps that were
    not read since are expired too. A timer per key, at or before its earliest expiry, finds the due maps. An entry past
    its expiry stays readable until the next epoch: a map read since the last epoch (`ExpireMap` knows this by the
    number of the run between epochs) is not expired by that epoch again.
    """

    def __init__(self, context: OperatorContext, mapper: Any) -> None:
        super().__init__(context, mapper)
        self.state = KeyedState(ExpireMap, tracked=context.tracked, admit=context.admit)
        self._timers = Timers()
        self._now: Any = MIN
        self._run = 0
        self._lent: list[Any] = []
        self._failed: list[int] = []  # the positions of failed records of the current batch, with a guard

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column, then expire due entries."""
        map_some = self._map if self.guard is None else partial(self._map_guarded, self.guard)
        states, rest = self.state, iter(batch.values)
        rows = zip(batch.key_column(), rest, batch.timestamps, strict=True)
        values: list[Any] = []
        try:
            for count, epoch in _runs(batch):
                map_some(islice(rows, count), values)
                if epoch is not MIN:
                    self._now, self._run = epoch, self._run + 1
        except OperatorError:
            raise
        except failures() as error:
            raise self.fail(shape_error(error, "(value, ExpireMap | None)"), batch, rest) from error
        states.touch(batch.key_column())
        try:
            self._set_timers(set(batch.key_column()))
            self._sweep()
        except failures() as error:
            raise self.error(error, about=f"epoch {short_repr(self._now)}") from error
        failed, self._failed = self._failed, []
        return (without(failed, batch.with_values(values)),)

    def _map(self, records: Iterator[Record], values: list[Any]) -> None:
        """Append the values of the records between two epochs."""
        mapper, states, now, run = self.callback, self.state, self._now, self._run
        lent, atomic = self._lent, ATOMIC_TYPES
        for key, value, timestamp in records:
            entries = states[key]
            if entries._seen != run and (order := entries._order) and order[0][0] <= now:
                entries.expire(now)
            entries._lent = lent
            emitted, entries = mapper(key, value, timestamp, entries)
            values.append(emitted if type(emitted) in atomic else apart(emitted, entries, lent))
            if lent:
                lent.clear()
            if entries is None:
                self._drop(key)
                continue
            entries._seen = run
            states[key] = entries

    def _map_guarded(self, guard: Guard, records: Iterator[Record], values: list[Any]) -> None:
        states, lent, run = self.state, self._lent, self._run
        mapped: list[Any] = []
        failed: list[int] = []
        for record in guard.turns(records):
            key, value, timestamp = record
            try:
                emitted, entries = self.callback(key, value, timestamp, self.spare(key, self._read(key)))
                emitted = apart(emitted, entries, lent)
                if entries is not None:
                    entries._seen = run
            except settled_failures() as error:
                if guard.repeats(error):
                    continue
                self.lose(guard, error, record, shape_error(error, "(value, ExpireMap | None)"))
                failed.append(len(mapped) + len(guard.passed))
                mapped.append(None)
                continue
            mapped.append(emitted)
            if entries is None:
                self._drop(key)
            else:
                states[key] = entries
        mapped, failed = completed(guard, mapped, failed)
        self._failed += [len(values) + at for at in failed]
        values += mapped

    def _read(self, key: Any) -> ExpireMap[Any, Any, Any]:
        """Return the map of a key, without the entries that the last epoch has reached."""
        entries: ExpireMap[Any, Any, Any] = self.state[key]
        if entries._seen != self._run:
            entries.expire(self._now)
        self._lent.clear()
        entries._lent = self._lent
        return entries

    def copy_of(self, state: ExpireMap[Any, Any, Any]) -> ExpireMap[Any, Any, Any]:
        """Return a copy of a map; it lends its values like the map itself."""
        return state.spare()

    def _drop(self, key: Any) -> None:
        """Drop the map of a key, with its timer."""
        self.state.pop(key, None)
        self._timers.cancel(key)

    def _set_timers(self, keys: Iterable[Any]) -> None:
        states, deadlines = self.state, self._timers.at
        for key in keys:
            entries = states.get(key)
            if entries is None:
                continue
            soonest = entries._order[0][0] if entries._entries else MIN
            if key not in deadlines or deadlines[key] > soonest:
                self._set_timer(key, soonest)

    def _set_timer(self, key: Any, expiry: Any) -> None:
        try:
            self._timers.set(key, expiry)
        except TypeError:
            self._timers.set(key, _Unhashable(expiry))

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state, and set the timers of its keys.

        Their entries due at the last epoch are already gone: the maps count as read since.
        """
        super().apply(delta)
        if delta.whole:
            self._timers.clear()
        for key in delta.deleted:
            self._timers.cancel(key)
        for key, entries in delta.changed.items():
            entries._seen = self._run
            self._set_timer(key, entries.earliest)

    def _sweep(self) -> None:
        """Expire due maps that were not read since the last epoch; those read since then stay until the next."""
        states, now, run = self.state, self._now, self._run
        due = list(self._timers.due(now))
        for key in due:
            entries = states[key]
            if entries._seen != run:
                entries.expire(now)
                states.touch((key,))
            if entries.is_empty():
                del states[key]
                states.touch((key,))
        self._set_timers(due)


class _Unhashable:
    """An unhashable expiry, such as an instance of a dataclass that isn't frozen; it equals only itself."""

    __slots__ = ("expiry",)

    def __init__(self, expiry: Any) -> None:
        self.expiry = expiry

    def __lt__(self, other: Any) -> Any:
        return self.expiry < (other.expiry if isinstance(other, _Unhashable) else other)

    def __le__(self, other: Any) -> Any:
        return self.expiry <= other

    def __gt__(self, other: Any) -> Any:
        return other < self.expiry


def _runs(batch: Batch) -> Iterator[tuple[int, Any]]:
    """Yield the length of each run of records and the epoch that ends it; `MIN` ends the last and expires nothing."""
    done = 0
    for position, epoch in batch.epochs:
        yield position - done, epoch
        done = position
    yield len(batch) - done, MIN
