"""Partial aggregation: the sender adds up the records of a key and pane, and sends accumulators.

It is exact, or not done. Merging an accumulator must equal adding its records (`aggregators.exactness`), and keys must
reach the receiver in the same order. So an accumulator is sent at the place of its first record, before any epoch that
closes its pane. Where the order of records matters, it has only records between two epochs of their sender, which the
receiver takes one after the other (`Merge`).

Anything unusual, such as records of closed panes or fields that can't be read, is sent as records, and the receiver
raises the usual errors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from malflow.aggregators.column_loop import AddingFailed, ColumnLoop
from malflow.aggregators.contract import Aggregator
from malflow.aggregators.exactness import Accumulated, has_fixed_zones
from malflow.diagnostics import operator_error
from malflow.event_time.panes import Panes, fitted, horizon
from malflow.message import MAX
from malflow.partitioners import PLAIN_TYPES, STABLE_KEYS_MET
from malflow.records.batch import Batch
from malflow.records.columnar import Unfit
from malflow.windows import TimeWindows

if TYPE_CHECKING:
    from malflow.columns.aggregates.local import LocalArrays

__all__ = [
    "LocalAggregate",
    "Worth",
]


_SEEN = 8_192
"""The number of records after which it is decided."""

_FIRST = 4
"""So many of the first records must become one accumulator, on average: with fewer there are too many keys."""

_ALL = 12
"""So many records of a tick must become one accumulator: with fewer, sending the records takes less time."""

_LIGHTER = 2
"""So many accumulators in arrays cost as one otherwise, beside their records: 6 records each are as many as pay."""

_TICKS = 16
"""Ticks until it is looked at again. Fewer: more trials that waste time; more: a slower reaction to other data."""

_MOST_TICKS = 256
"""The longest time between two looks. Less: more trials in vain; more: an advantage is noticed later."""


class Worth:
    """Compares the number of records with the number of accumulators that they become.

    It is looked at again every 16 ticks. Where it was not worth while the time before either, after twice as many.

    Attributes:
        is_given: whether it is worth while, or has to be tried.
    """

    def __init__(self) -> None:
        self.is_given = True
        self._records = self._accumulators = self._ticks = 0
        self._pause = _TICKS
        self._is_proven = False

    def note(self, records: int, accumulators: int) -> None:
        """Count records, and the accumulators that they have become."""
        self._records += records
        self._accumulators += accumulators
        if self._records >= _SEEN and _FIRST * self._accumulators > self._records:
            self._give_up()

    def end_tick(self) -> None:
        """Decide, if there were enough records; begin to look again where it is time."""
        self._ticks += 1
        if self.is_given and self._records >= _SEEN:
            self._is_proven = _ALL * self._accumulators <= self._records
            if not self._is_proven:
                self._give_up()
        if self._ticks < self._pause or (self.is_given and not self._is_proven):
            return
        self._pause = _TICKS if self.is_given else min(2 * self._pause, _MOST_TICKS)
        self.is_given, self._is_proven = True, False
        self._records = self._accumulators = self._ticks = 0

    def _give_up(self) -> None:
        self.is_given, self._ticks = False, 0


_TIMES = frozenset({int, float, datetime, date, timedelta})

_MOST = 1 << 16
"""The most accumulators that are held: more are sent before the end of the tick."""

_FEW = 8
"""Runs between epochs that are shorter, on average, aren't worth while where the order of records matters."""

_Rows = list[int] | None
"""Positions of records in a run; None for all of them."""


class _Run(NamedTuple):
    """Records that are added without a look at the epochs between them.

    Attributes:
        start: the position of the first one.
        stop: the position after the last one.
        epochs: the epochs after it and, if they close no pane, in it; by position.
        closing: the epoch after it, if that closes panes, or order matters; None otherwise.
        panes: the number of each pane, with the records in it.
    """

    start: int
    stop: int
    epochs: list[tuple[int, Any]]
    closing: Any
    panes: list[tuple[int, _Rows]]


class _Held:
    """Accumulators in the order of their first records, with the epochs between them."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.timestamps: list[Any] = []
        self.epochs: list[tuple[int, Any]] = []
        self._panes: list[dict[Any, Any]] = []

    def add(self, batch: Batch, found: Sequence[tuple[int, dict[Any, Any]]], epochs: Sequence[tuple[int, Any]]) -> None:
        """Append accumulators: the positions of their first records in a batch, each with its pane."""
        base, places = len(self.keys), [at for at, _ in found]
        self.epochs += [(base + bisect_left(places, position), epoch) for position, epoch in epochs]
        for at, accs in found:
            self.keys.append(batch.keys[at] if batch.keys is not None else None)
            self.timestamps.append(batch.timestamps[at])
            self._panes.append(accs)

    def batch(self) -> Batch:
        """Return them as they are now."""
        values = [Accumulated((accs[key],)) for key, accs in zip(self.keys, self._panes, strict=True)]
        return Batch(self.keys, values, self.timestamps, self.epochs)


# Example: sums by key, with the records (a, 1), (b, 2), (a, 3) of one pane, then an epoch that closes it.
#   sent as records         a 1, b 2, a 3, epoch
#   sent as accumulators    a 4, b 2, epoch: a has the place of its first record
# The receiver sees the keys in the same order, and merging 4 into its sum equals adding 1 and 3.
class LocalAggregate:
    """Aggregates the records that one worker sends to the windows of others; at the end of a tick it holds nothing.

    Args:
        operator: the name of the windows.
        windows: the windows.
        aggregators: their aggregators, for which `aggregators.column_loop.is_exact`.
        worth: decides whether it is worth while.

    Attributes:
        operator: as given.
    """

    def __init__(
        self,
        operator: str,
        windows: TimeWindows,
        aggregators: Sequence[Aggregator[Any, Any, Any]],
        *,
        worth: Worth | None = None,
    ) -> None:
        self.operator = operator
        self._unfitted = windows.panes
        self._loop = ColumnLoop(aggregators)
        self._worth = worth or Worth()
        self._panes: Panes | None = None
        self._kind: type | None = None
        self._reached: Any = None  # the last epoch; None before the first one
        self._horizon: Any = None  # no epoch below it closes a pane; None: unknown
        self._open: dict[int, dict[Any, Any]] = {}
        self._held: list[_Held | Batch] = []
        self._count = 0
        self._saved = 0
        self._aggregators = aggregators
        self._takes_arrays = True
        self._arrays: LocalArrays | None = None

    def take(self, batch: Batch) -> Sequence[Batch]:
        """Take records on their way; return those to be sent now."""
        if not self._worth.is_given or (batch.has_arrays and not self._takes_arrays):
            self._pass(batch.epochs)
            return (*self.drain(), batch)
        if not (self._add_columns(batch) if batch.has_arrays else self._add_records(batch)):
            self._hold(batch)
        return self.drain() if self._count >= _MOST or not self._worth.is_given else ()

    def _add_records(self, batch: Batch) -> bool:
        """Add records one by one; return whether that is exact."""
        runs = self._runs(batch)
        if runs is None:
            return False
        self._seal()
        self._add(batch, *runs)
        return True

    def _add_columns(self, batch: Batch) -> bool:
        """Add columns of records to arrays; return whether that is exact, and arrays hold them."""
        self._open.clear()
        if self._reached is None or batch.keys is None:
            return False
        try:
            arrays = self._begin_arrays() if self._arrays is None else self._arrays
            is_cut = arrays.is_ordered and bool(batch.epochs)
            if is_cut and _FEW * len(batch.epochs) > len(batch):
                return False
            if is_cut:
                self._seal()
            found = arrays.add(batch, self._reached)
        except Unfit:
            self._seal()
            self._arrays = None
            return False
        self._pass(batch.epochs)
        self._note(len(batch), found, found // _LIGHTER)
        if is_cut:
            self._seal()
        return True

    def _begin_arrays(self) -> LocalArrays:
        from malflow.columns.aggregates.local import LocalArrays  # noqa: PLC0415 - only the extra has it

        self._takes_arrays = False
        self._arrays = LocalArrays(self._unfitted, self._aggregators)
        self._takes_arrays = True
        return self._arrays

    def _seal(self) -> None:
        """Add no more to the accumulators in arrays."""
        if self._arrays:
            self._held.append(self._arrays.take())

    def _pass(self, epochs: Sequence[tuple[int, Any]]) -> None:
        """Note epochs, without a look at what they close."""
        if epochs:
            self._reached, self._horizon = epochs[-1][1], None

    def _note(self, records: int, accumulators: int, counted: int) -> None:
        """Count records, and the accumulators that they have become; their cost is that of some `counted` ones."""
        self._count += accumulators
        self._saved += records - accumulators
        self._worth.note(records, counted)

    def drain(self) -> Sequence[Batch]:
        """Return all that it holds."""
        self._seal()
        batches = [it if isinstance(it, Batch) else it.batch() for it in self._held]
        self._open, self._held, self._count = {}, [], 0
        return batches

    def end_tick(self) -> Sequence[Batch]:
        """Return all that it holds, at the end of a tick."""
        self._worth.end_tick()
        return self.drain()

    def take_saved(self) -> int:
        """Return how many records more than accumulators there were since the last call."""
        saved, self._saved = self._saved, 0
        return saved

    def _hold(self, batch: Batch) -> None:
        """Hold records as they are, after all that came before."""
        self._seal()
        if self._reached is not None:
            self._worth.note(len(batch), len(batch))
        self._held.append(batch)
        self._count += len(batch)
        self._open.clear()
        self._pass(batch.epochs)

    def _runs(self, batch: Batch) -> tuple[list[_Run], list[Sequence[Any]]] | None:
        """Return the runs of a batch, and the columns of its values; None if it can't be aggregated exactly."""
        keys, count = batch.keys, len(batch)
        if not count or keys is None or self._reached is None:
            return None
        if self._loop.ordered and _FEW * len(batch.epochs) > count:
            return None
        try:
            if STABLE_KEYS_MET.is_set() and not PLAIN_TYPES.issuperset(map(type, keys)):
                return None
            columns = self._loop.read(batch.values)
            if columns is None or not self._has_fit_times(batch.timestamps):
                return None
            return self._cut(batch), columns
        except (Exception, SystemExit):  # noqa: BLE001 - of user code; the receiver raises it for its record
            return None

    def _has_fit_times(self, timestamps: Sequence[Any]) -> bool:
        """Whether timestamps have a total order, if it matters, and are of the type of the first one."""
        if self._panes is None:
            if type(timestamps[0]) not in _TIMES:
                return False
            self._panes, self._kind = fitted(self._unfitted, timestamps[0]), type(timestamps[0])
        return self._kind is not datetime or not self._loop.timed or has_fixed_zones(timestamps)

    def _cut(self, batch: Batch) -> list[_Run]:
        """Cut a batch at the epochs that close panes, or at all of them if order matters.

        Raises:
            ValueError: if a record's pane is closed, or its timestamp of another type.
        """
        reached, horizon, done = self._reached, self._horizon, 0
        runs: list[_Run] = []
        passed: list[tuple[int, Any]] = []
        for position, epoch in batch.epochs:
            passed.append((position, epoch))
            if not self._loop.ordered and epoch is not MAX and horizon is not None and epoch < horizon:
                continue
            runs.append(_Run(done, position, passed, epoch, self._by_pane(batch.timestamps, done, position, reached)))
            reached, horizon, done, passed = epoch, self._horizon_after(epoch), position, []
        runs.append(_Run(done, len(batch), passed, None, self._by_pane(batch.timestamps, done, len(batch), reached)))
        self._reached, self._horizon = reached, horizon
        return runs

    def _horizon_after(self, epoch: Any) -> Any:
        """Return the last instant of the first pane that is open."""
        panes = self._panes
        if epoch is MAX or panes is None:
            return None
        return horizon(panes, epoch)

    def _by_pane(self, timestamps: Sequence[Any], start: int, stop: int, reached: Any) -> list[tuple[int, _Rows]]:
        """Return the number of each pane with its records, by their positions in the batch."""
        panes = self._panes
        if start == stop or panes is None:
            return []
        whole = stop - start == len(timestamps)
        own = timestamps if whole else timestamps[start:stop]
        low, high = min(own), max(own)
        first = panes.number(low)
        if panes.last(first) <= reached or type(low) is not self._kind or type(high) is not self._kind:
            raise ValueError("there is a record for the receiver to refuse")
        if first == panes.number(high):
            return [(first, None if whole else [*range(start, stop)])]
        rows: dict[int, list[int]] = {}
        bounds: tuple[Any, Any] | None = None
        for at, timestamp in enumerate(own, start):
            if bounds is None or not bounds[0] <= timestamp < bounds[1]:
                number = panes.number(timestamp)
                bounds, append = (panes.start(number), panes.start(number + 1)), rows.setdefault(number, []).append
            append(at)
        return [*rows.items()]

    def _add(self, batch: Batch, runs: Sequence[_Run], columns: Sequence[Sequence[Any]]) -> None:
        for run in runs:
            found: list[tuple[int, dict[Any, Any]]] = []
            for number, rows in run.panes:
                accs = self._open.setdefault(number, {})
                found += [(at, accs) for at in self._add_to(accs, batch, columns, rows)]
            if len(run.panes) > 1:
                found.sort(key=itemgetter(0))
            if not self._held or isinstance(self._held[-1], Batch):
                self._held.append(_Held())
            held = self._held[-1]
            if isinstance(held, _Held):
                held.add(batch, found, run.epochs)
            self._note(run.stop - run.start, len(found), len(found))
            if run.closing is not None:
                self._close(run.closing)

    def _add_to(
        self, accs: dict[Any, Any], batch: Batch, columns: Sequence[Sequence[Any]], rows: _Rows
    ) -> Sequence[int]:
        """Add records to the accumulators of a pane; return the positions in the batch of those with new keys.

        Raises:
            OperatorError: if a user's aggregator fails.
        """
        keys, timestamps = batch.keys or (), batch.timestamps
        if rows is not None:
            if len(rows) == 1:
                one = slice(rows[0], rows[0] + 1)
                keys, timestamps, columns = keys[one], timestamps[one], [it[one] for it in columns]
            else:
                pick = itemgetter(*rows)
                keys, timestamps, columns = pick(keys), pick(timestamps), [pick(it) for it in columns]
        try:
            found = self._loop.add(accs, keys, columns, timestamps)
        except AddingFailed as failed:
            at = failed.at if rows is None else rows[failed.at]
            record = (keys[failed.at], batch.values[at], batch.timestamps[at])
            raise operator_error(self.operator, failed.__cause__ or failed, record, None) from failed.__cause__
        return found if rows is None else [rows[at] for at in found]

    def _close(self, epoch: Any) -> None:
        """Add no more to the accumulators of panes that an epoch closes; if order matters, to none."""
        panes = self._panes
        if panes is None or self._loop.ordered or epoch is MAX:
            self._open.clear()
            return
        for number in [number for number in self._open if panes.last(number) <= epoch]:
            del self._open[number]
