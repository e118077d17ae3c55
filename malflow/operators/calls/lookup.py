"""The operator that asks a table outside of the dataflow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from datetime import datetime, timedelta
from itertools import compress
from operator import length_hint
from typing import Any

from malflow.errors import MissingDependency, failures
from malflow.event_time.tick import Tick
from malflow.operators.contract import Counts, Operator, OperatorContext
from malflow.records.batch import Batch
from malflow.words import error_line, short_repr

__all__ = ["LOOKUP_COUNTS", "Lookup", "check_cachetools"]

LOOKUP_COUNTS = Counts(counters=("asked", "absent", "cached"))
"""The keys for which the table was asked, the keys without a row, and the keys in the cache, batch by batch."""

_ABSENT_SHARE = 10
"""The absence of a row is kept for a tenth of the time of a row."""


class Lookup(Operator):
    """Join the records with rows of a table outside, by one call for the distinct keys of a batch.

    Args:
        context: the operator's context.
        by: returns the key of a value; None for the value itself.
        table: the table, a `malflow.lookups.LookupTable`.
        joiner: makes the result of a value and its row or None.
        inner: whether records without a row are dropped.
        cache: how long a row is kept; None for no longer than a batch.
        most: the maximum number of rows that are kept.
    """

    is_repeatable = False

    def __init__(
        self,
        context: OperatorContext,
        by: Callable[[Any], Any] | None,
        table: Any,
        joiner: Callable[[Any, Any], Any],
        *,
        inner: bool,
        cache: timedelta | None,
        most: int,
    ) -> None:
        super().__init__(context, joiner)
        self._by, self._table, self._inner = by, table, inner
        self._now = Tick().now
        self._cache = None if cache is None else _new_cache(cache, most, lambda: self._now)
        self._counts = dict.fromkeys(LOOKUP_COUNTS.counters, 0)

    def begin_tick(self, tick: Tick) -> None:
        """Take the time, by which rows in the cache expire."""
        self._now = tick.now

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Ask for the rows of a batch, and join them."""
        if not batch.values:
            return (batch,)
        keys, wanted = self._keys(batch)
        rows = self._rows(wanted, keys, batch)
        found = list(map(rows.get, keys))
        joiner, rest = self.callback, iter(batch.values)
        if self._inner:
            mask = [row is not None for row in found]
            batch = batch.select(mask)
            found, rest = list(compress(found, mask)), iter(batch.values)
        try:
            values = list(map(joiner, rest, found))
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (batch.with_values(values),)

    def _keys(self, batch: Batch) -> tuple[list[Any], Iterable[Any]]:
        """Return the keys of the records, and each of them once."""
        rest = iter(batch.values)
        keys: list[Any] = []
        try:
            keys += rest if self._by is None else map(self._by, rest)
            return keys, dict.fromkeys(keys)
        except Exception as error:
            at = len(batch) - length_hint(rest) - 1 if len(keys) < len(batch) else _first_unhashable(keys)
            raise self.fail_at(error, batch, at, self._by) from error

    def _rows(self, wanted: Iterable[Any], keys: Sequence[Any], batch: Batch) -> Mapping[Any, Any]:
        """Return the rows by key; None, or no item, for keys without one."""
        cache, counts = self._cache, self._counts
        rows: dict[Any, Any] = {}
        if cache is not None:
            for key in wanted:
                row = cache.get(key, self)
                if row is not self:
                    rows[key] = row
        asked = [key for key in wanted if key not in rows]
        counts["cached"] += len(rows)
        if not asked:
            return rows
        answer = self._asked(asked, keys, batch)
        counts["asked"] += len(asked)
        for key in asked:
            rows[key] = row = answer.get(key)
            counts["absent"] += row is None
            if cache is not None:
                cache[key] = row
        return rows

    def _asked(self, asked: Sequence[Any], keys: Sequence[Any], batch: Batch) -> Mapping[Any, Any]:
        cause: Exception | None = None
        try:
            answer = self._table.get_many(asked)
        except Exception as error:  # noqa: BLE001 - it is raised below, with the record
            cause, problem = error, error_line(error)
        else:
            problem = _problem(answer, asked)
            if not problem:
                checked: Mapping[Any, Any] = answer
                return checked
        others = f" and {len(asked) - 1} more" if len(asked) > 1 else ""
        told = f"the look-up of {short_repr(asked[0])}{others} in {short_repr(self._table)}: {problem}"
        raise self.fail_at(told, batch, keys.index(asked[0]), None) from cause

    def take_counts(self) -> Mapping[str, int]:
        """Return and reset the counters."""
        counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return counts

    def close(self) -> None:
        """Close the connections of the table, if it has any."""
        close = getattr(self._table, "close", None)
        if close is not None:
            close()


def _first_unhashable(keys: Sequence[Any]) -> int:
    for at, key in enumerate(keys):
        try:
            hash(key)
        except Exception:  # noqa: BLE001 - a class of the user may raise any
            return at
    return len(keys) - 1


def check_cachetools() -> None:
    """Check that caches can be made.

    Raises:
        MissingDependency: if cachetools is not installed.
    """
    _new_cache(timedelta(1), 1, lambda: Tick().now)


def _new_cache(kept: timedelta, most: int, now: Callable[[], datetime]) -> MutableMapping[Any, Any]:
    """Return a cache of rows, the least recently used of which are dropped; None stands for the absence of a row.

    Raises:
        MissingDependency: if cachetools is not installed.
    """
    try:
        from cachetools import TLRUCache  # noqa: PLC0415 - only this needs it
    except ImportError as error:
        raise MissingDependency("lookup(cache=...) needs cachetools; pip install 'malflow[lookups]'") from error

    def until(_key: Any, row: Any, at: datetime) -> datetime:
        return at + (kept / _ABSENT_SHARE if row is None else kept)

    cache: MutableMapping[Any, Any] = TLRUCache(most, until, timer=now)
    return cache


def _problem(answer: Any, asked: Sequence[Any]) -> str:
    """Return the problem with an answer of `get_many`; empty if it is right."""
    if not isinstance(answer, Mapping):
        return f"get_many() must return a mapping of keys to rows; got {short_repr(answer)}"
    known = set(asked)
    unasked = [key for key in answer if key not in known]
    if unasked:
        return f"get_many() returned a row of {short_repr(unasked[0])}, which was not asked for"
    return ""
