"""Rollups: aggregates by several calendar units, each merged from the accumulators of the finer unit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any, NamedTuple

from malflow.aggregators.contract import Aggregator
from malflow.event_time.panes import CalendarPanes, Panes, Unit, fitted
from malflow.message import MAX
from malflow.operators.columns import Results
from malflow.operators.contract import OperatorContext
from malflow.operators.waiting import Waiting
from malflow.operators.windows.time_windows import WindowAggregate
from malflow.records.batch import Batch
from malflow.records.columnar import Unfit
from malflow.states.keyed import Delta
from malflow.windows import FOREVER, TimeWindows, Timing, WindowResult

__all__ = ["Level", "RollupAggregate"]

_UNITS = tuple(Unit)


class Level(NamedTuple):
    """A level of a rollup.

    Attributes:
        panes: the calendar units.
        keep: how long closed panes are kept; None to drop them at once.
    """

    panes: CalendarPanes
    keep: Any


class RollupAggregate(WindowAggregate):
    """Aggregate the records of each key in windows of several calendar units, each dividing the next.

    A record is added to the pane of the finest unit. When a pane closes, its accumulators are merged into the pane of
    the next unit that contains it. That pane closes after its last pane, by the same epoch. Panes of one unit are
    merged in order, so floats are the same to the last bit after a restart.

    The panes of all units are in one state, where a pane's number is its own number times the number of units, plus the
    number of its unit.

    Args:
        context: the operator's context.
        levels: the levels, finest first; each has an output.
        aggregators: the aggregators of each window's records; they must support merging.
    """

    def __init__(
        self, context: OperatorContext, levels: Sequence[Level], aggregators: Sequence[Aggregator[Any, Any, Any]]
    ) -> None:
        super().__init__(context, TimeWindows(levels[0].panes), aggregators)
        self._levels = [_LevelPanes(*level) for level in levels]
        self._outputs: Sequence[Results] = ()
        self._sorted = False  # whether the levels know their panes

    def begin_arrays(self) -> None:
        """Refuse arrays: a pane here is of one of several units."""
        raise Unfit("windows of several units are kept record by record")

    @property
    def units(self) -> list[str]:
        """The units of the levels, finest first."""
        return [level.unit.value for level in self._levels]

    def new_outputs(self) -> Sequence[Results]:
        """Return an empty collection of results for each level."""
        self._outputs = [Results() for _ in self._levels]
        return self._outputs

    def add(self, number: int, run: Batch) -> None:
        """Add records to a pane of the finest level."""
        self._sort()
        finest = self._levels[0]
        finest.open.add(number)
        super().add(finest.slot(number), run)

    def close_windows(self, panes: Panes, epoch: Any, results: Results) -> None:
        """Close the panes that end by an epoch, level by level, and drop closed ones that were kept long enough."""
        self._sort()
        coarser = [*self._levels[1:], None]
        for level, above, output in zip(self._levels, coarser, self._outputs, strict=True):
            for number in level.closing(epoch):
                self._close(level, above, number, epoch is MAX, output)
        if epoch is MAX:
            return
        now = panes.start(self._first_open(panes, epoch))
        for level in self._levels:
            for number in level.expired(now):
                self.state.drop(level.slot(number))

    def waiting(self) -> Waiting | None:
        """Return the number of open windows of all units, and the last instant of the first."""
        if not self.state:
            return None
        self._sort()
        ends = [level.panes.last(number) for level in self._levels for number in level.open]
        return Waiting("windows", len(ends), min(ends)) if ends else None

    def held(self) -> Waiting | None:
        """Return the number of open windows of all units."""
        return self.waiting()

    def results_so_far(self, unit: str | None = None) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
        """Yield each key with its results of windows that are open, or closed and kept, unit by unit.

        An open window has all of its records: the records of the finer unit's open windows are merged in.

        Args:
            unit: the unit of the windows; None for all.
        """
        if self._fitted() is None:
            return
        self._sort()
        below = self._levels[0]
        finer: dict[int, Mapping[Any, Any]] = {}
        for level in self._levels:
            unfinished: dict[int, Mapping[Any, Any]] = {it: self.state.panes[level.slot(it)] for it in level.open}
            for number in sorted(finer):
                parent = self._parent(below, level, number)
                unfinished[parent] = self.merge(unfinished.get(parent, {}), finer[number])
            if unit in (None, level.unit.value):
                closed: dict[int, Mapping[Any, Any]] = {it: self.state.panes[level.slot(it)] for it in level.kept}
                for number, states in sorted({**closed, **unfinished}.items(), key=itemgetter(0)):
                    yield from self._so_far(level.panes, number, states)
            below, finer = level, unfinished

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state."""
        super().apply(delta)
        self.resume()

    def resume(self) -> None:
        """Determine again which panes of the levels are open."""
        super().resume()
        self._sorted = False

    def _close(self, level: _LevelPanes, above: _LevelPanes | None, number: int, ended: bool, results: Results) -> None:
        """Close a pane: emit its results, merge it into the next level, and drop it or start to keep it."""
        slot = level.slot(number)
        states = self.not_closed(level.panes.last(number), self.state.panes[slot])
        self.emit(level.panes, number, states, Timing.END if ended else Timing.FINAL, results)
        if above is not None and states:
            self._merge_into(above, self._parent(level, above, number), states)
        level.open.discard(number)
        if level.keep is None:
            self.state.drop(slot)
        else:
            level.kept.append(number)

    def _merge_into(self, level: _LevelPanes, number: int, states: Mapping[Any, Any]) -> None:
        """Merge accumulators into a pane. The pane may take them over, since no record is added to them again."""
        slot = level.slot(number)
        held = self.state.pane(slot)
        held.update(self.merge({key: held[key] for key in states if key in held}, states))
        self.state.touch(slot, states)
        level.open.add(number)

    def _parent(self, level: _LevelPanes, above: _LevelPanes, number: int) -> int:
        """Return the number of the pane that contains a pane of the finer level.

        Raises:
            OperatorError: if no pane does.
        """
        start, last = level.panes.start(number), level.panes.last(number)
        parent = above.panes.number(start)
        if above.panes.last(parent) < last:
            raise self.error(
                f"the {level.unit.value} from {start} is in two {above.unit.value}s, since the zone's offset was not a "
                f"whole number of {level.unit.value}s then; omit the level {level.unit.value!r}, or use zone='UTC'"
            )
        return parent

    def _first_open(self, panes: Panes, epoch: Any) -> int:
        """Return the first pane of the finest level that an epoch leaves open, even if it has no records."""
        number = panes.number(epoch)
        while panes.last(number) <= epoch:
            number += 1
        return number

    def _sort(self) -> None:
        """Assign the panes of the state to their levels."""
        if self._sorted:
            return
        numbers: dict[Unit, list[int]] = {}
        for slot in sorted(self.state.panes):
            number, unit = divmod(slot, len(_UNITS))
            numbers.setdefault(_UNITS[unit], []).append(number)
        for level in self._levels:
            level.assign(numbers.get(level.unit, []), self.reached.like, self.reached.epoch)
        self._sorted = True


class _LevelPanes:
    """The existing panes of a level.

    Attributes:
        open: the numbers of the open panes.
        kept: the numbers of the closed panes, in ascending order.
    """

    panes: Panes

    def __init__(self, panes: CalendarPanes, keep: Any) -> None:
        self.unit = panes.unit
        self.keep = keep
        self.open: set[int] = set()
        self.kept: deque[int] = deque()
        self._unfitted = panes
        self._rank = _UNITS.index(panes.unit)

    def slot(self, number: int) -> int:
        """Return the number of a pane in the state."""
        return number * len(_UNITS) + self._rank

    def assign(self, numbers: Sequence[int], like: Any, epoch: Any) -> None:
        """Set the existing panes, for timestamps of the type of `like`, open or closed by an epoch."""
        self.panes = panes = fitted(self._unfitted, like)
        self.kept = deque(it for it in numbers if epoch is not None and panes.last(it) <= epoch)
        self.open = set(numbers).difference(self.kept)

    def closing(self, epoch: Any) -> Iterator[int]:
        """Yield the open panes that end by an epoch, in ascending order."""
        for number in sorted(self.open):
            if epoch is not MAX and self.panes.last(number) > epoch:
                return
            yield number

    def expired(self, now: Any) -> Iterator[int]:
        """Yield the closed panes that were kept long enough, and remove them."""
        if self.keep is FOREVER:
            return
        span = self.keep or timedelta(0)  # without a span: a former program kept them
        while self.kept and self.panes.start(self.kept[0] + 1) + span <= now:
            yield self.kept.popleft()
