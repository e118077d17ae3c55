"""Rollups: aggregates of each key in windows of several calendar units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from malflow.aggregators.contract import Aggregator
from malflow.checks import checked_duration
from malflow.errors import GraphError
from malflow.event_time.panes import CalendarPanes, Unit
from malflow.operators.epochs.frontiers import REACHED
from malflow.states.kinds import StateKind
from malflow.streams.arguments import malformed
from malflow.streams.operators.stateful import StatefulOperators
from malflow.streams.operators.windows import check_merge, kernel_of
from malflow.windows import FOREVER, WindowResult, calendar
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.operators.windows.rollup import Level
    from malflow.streams.keywords import RolledUp
    from malflow.streams.stream import KeyedStream

__all__ = ["RollupOperators"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R4 = TypeVar("R4")


class RollupOperators(StatefulOperators[K, V_co, T]):
    """The method that aggregates the records of each key by several calendar units."""

    __slots__ = ()

    @overload
    def rollup(
        self, name: str, levels: Sequence[str], a1: Aggregator[V_co, Any, R1], /, **more: Unpack[RolledUp]
    ) -> dict[str, KeyedStream[K, WindowResult[R1, T], T]]: ...
    @overload
    def rollup(
        self,
        name: str,
        levels: Sequence[str],
        a1: Aggregator[V_co, Any, R1],
        a2: Aggregator[V_co, Any, R2],
        /,
        **more: Unpack[RolledUp],
    ) -> dict[str, KeyedStream[K, WindowResult[tuple[R1, R2], T], T]]: ...
    @overload
    def rollup(
        self,
        name: str,
        levels: Sequence[str],
        a1: Aggregator[V_co, Any, R1],
        a2: Aggregator[V_co, Any, R2],
        a3: Aggregator[V_co, Any, R3],
        /,
        **more: Unpack[RolledUp],
    ) -> dict[str, KeyedStream[K, WindowResult[tuple[R1, R2, R3], T], T]]: ...
    @overload
    def rollup(
        self,
        name: str,
        levels: Sequence[str],
        a1: Aggregator[V_co, Any, R1],
        a2: Aggregator[V_co, Any, R2],
        a3: Aggregator[V_co, Any, R3],
        a4: Aggregator[V_co, Any, R4],
        /,
        **more: Unpack[RolledUp],
    ) -> dict[str, KeyedStream[K, WindowResult[tuple[R1, R2, R3, R4], T], T]]: ...
    def rollup(
        self,
        name: str,
        levels: Any,
        *aggregators: Any,
        zone: Any = "UTC",
        keep: Any = None,
        version: int = 1,
        migrate: Any = None,
    ) -> Any:
        """Aggregate the records of each key in windows of several calendar units; return a stream for each unit.

        Each stream has the results of the windows ``calendar(unit, zone)``, as `Windowed.aggregate` would emit them.
        But each record is added only once, to the window of the finest unit: when a window closes, its accumulator is
        merged into that of the next unit. This changes the order of additions, and so the last digits of sums of
        floats; see `agg.fsum`.

        Args:
            name: the operator's name; snapshots store the accumulators under it.
            levels: the units, from the finest to the coarsest; each must divide the next. They are ``second``,
                ``minute``, ``hour``, ``day``, ``week``, ``month``, ``quarter`` and ``year``. Weeks divide nothing.
            aggregators: up to four of `malflow.agg` that support merging. With several, a result's value is a tuple.
            zone: the time zone of all levels: its name, or a tzinfo.
            keep: how long the state keeps the accumulators of closed windows, by level: a timedelta, or
                `malflow.windows.FOREVER`. They are part of snapshots, where
                `malflow.reading.read_windows` reads them.
            version: the schema version of the accumulators: increase it when levels, zone or aggregators change.
            migrate: ``(old_accumulator, old_version) -> accumulator``; None drops it.

        >>> from datetime import datetime, timedelta, timezone
        >>> def sales(stream):
        ...     hour = lambda msg: datetime(2026, 3, 1, tzinfo=timezone.utc) + timedelta(hours=msg.value)
        ...     on_time, _ = stream.assign_timestamps("hour", hour).generate_epochs("epochs", lambda msg, _: None)
        ...     keyed = on_time.key_distribute("all", lambda msg: "all")
        ...     levels = keyed.rollup("sales", ["day", "month"], agg.count())
        ...     return levels["day"].union(levels["month"]).map("counts", lambda it: (f"{it.end:%B %d}", it.value))
        >>> run([1, 2, 25], sales)
        [('March 02', 2), ('March 03', 1), ('April 01', 3)]
        """
        from malflow.operators.windows.rollup import RollupAggregate  # noqa: PLC0415 - most programs have no rollup

        kernel = kernel_of(name, aggregators)
        check_merge(name, kernel, "levels made of each other")
        found = _levels(name, levels, zone, {} if keep is None else keep)
        units = [level.panes.unit.value for level in found]
        panes = f"{', '.join(map('{}s'.format, units))} in {found[0].panes.zone}"
        streams = self._stateful(
            name,
            partial(RollupAggregate, levels=found, aggregators=kernel.aggregators),
            StateKind.ROLLUP,
            version,
            migrate,
            hidden=((REACHED, StateKind.EPOCHS),),
            definition=f"{kernel.definition} in a rollup of {panes}",
            panes=panes,
            outputs=len(found),
            reads=kernel.fields,
            takes_columns=kernel.reads_names,
            tells_by=tuple(level.panes for level in found),
        )
        return dict(zip(units, streams if len(found) > 1 else (streams,), strict=True))


def _levels(name: str, levels: Any, zone: Any, keep: Any) -> list[Level]:
    """Return the levels of a rollup.

    Raises:
        GraphError: if there are none, one is unknown or doesn't divide the next, or `keep` names another level.
    """
    from malflow.operators.windows.rollup import Level  # noqa: PLC0415 - as above

    if isinstance(levels, str) or not isinstance(levels, Sequence) or not levels:
        raise malformed(name, f"needs a list of calendar units as its levels; got {short_repr(levels)}")
    try:
        found = [calendar(unit, zone).panes for unit in levels]
    except GraphError as error:
        raise malformed(name, f"can't be added: {error.reason}") from None
    panes = [it for it in found if isinstance(it, CalendarPanes)]
    for finer, coarser in pairwise(panes):
        _check_divides(name, finer, coarser)
    kept = _checked_keep(name, levels, keep)
    return [Level(it, kept.get(it.unit.value)) for it in panes]


def _check_divides(name: str, finer: CalendarPanes, coarser: CalendarPanes) -> None:
    """Check that each unit of a level lies in one unit of the next."""
    units, one, other = list(Unit), finer.unit, coarser.unit
    if units.index(one) >= units.index(other):
        raise malformed(
            name,
            f"needs levels from the finest to the coarsest, each once; {one.value!r} precedes {other.value!r}",
        )
    if one is Unit.WEEK:
        raise malformed(
            name,
            f"has the level 'week' before {other.value!r}, and a week may be in two {other.value}s; use a separate "
            "rollup for weeks",
        )


def _checked_keep(name: str, levels: Sequence[str], keep: Any) -> dict[str, Any]:
    """Return how long windows are kept, by level."""
    if not isinstance(keep, Mapping):
        raise malformed(name, f"needs a mapping of levels to times as its keep; got {short_repr(keep)}")
    kept = {}
    for level, span in keep.items():
        if level not in levels:
            raise malformed(name, f"keeps windows of {short_repr(level)}, which is not one of its levels")
        known = partial(malformed, name)
        is_endless = span is FOREVER
        kept[level] = span if is_endless else checked_duration(known, f"keep of {level!r}", span, or_else="FOREVER")
    return kept
