"""The operator of each kind of windows, and its kind of state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from malflow.aggregators.column_loop import is_exact
from malflow.aggregators.fuse import Kernel, compile_kernel
from malflow.aggregators.slots import packed
from malflow.errors import GraphError
from malflow.event_time.panes import CalendarPanes, RegularPanes
from malflow.nodes import TellsBy, UnionNode
from malflow.operators.columns import are_columns
from malflow.operators.contract import Operator
from malflow.operators.epochs.frontiers import INPUTS, REACHED
from malflow.operators.joins.cogroup import (
    SessionCogroup,
    SlidingCogroup,
    WindowCogroup,
    arranged_groups,
    migrated_groups,
)
from malflow.operators.windows.counting import CountAggregate
from malflow.operators.windows.early import EARLY
from malflow.operators.windows.local_aggregate import LocalAggregate
from malflow.operators.windows.session import SessionAggregate
from malflow.operators.windows.sliding import CumulateAggregate, SlidingAggregate
from malflow.operators.windows.time_windows import WindowAggregate
from malflow.records.rows import ReadField
from malflow.states.kinds import Arrangement, StateKind, StateLayout
from malflow.streams.arguments import checked_function, malformed
from malflow.streams.handle import StreamHandle
from malflow.streams.operators.stateful import StatefulOperators
from malflow.windows import CountWindows, SessionWindows, TimeWindows, Windows

__all__ = ["WindowOptions", "add_cogroup", "add_window", "check_merge", "kernel_of"]

Migrate = Callable[[Any, int], Any]


@dataclass(frozen=True)
class WindowOptions:
    """The arguments of `KeyedStream.window` and `Windowed.allow_late`.

    Attributes:
        windows: the kind of windows.
        early: the distance between early results; None for no early results.
        until: how long closed windows are kept for late records; 0 or None to drop them at once.
    """

    windows: Windows
    early: Any = None
    until: Any = None


def add_window(
    stream: StatefulOperators[Any, Any, Any],
    options: WindowOptions,
    name: str,
    aggregators: Sequence[Any],
    version: int,
    migrate: Migrate | None,
    *,
    late: StreamHandle[Any, Any, Any] | None = None,
    layout: StateLayout | None = None,
) -> Any:
    """Add the window operator to a keyed stream and, if given, its late records."""
    kernel, windows = kernel_of(name, aggregators), options.windows
    kind, operator = _operator_of(name, windows, kernel)
    if migrate is not None:
        checked_function(name, "migrate", migrate, "old, old_version")
        migrate = _migration_of(kind, migrate)
    logic: Any = partial(operator, windows=windows, aggregators=kernel.aggregators)
    hidden = [(REACHED, StateKind.EPOCHS)]
    is_plain = late is None and not options.early and not options.until
    local = _local_of(name, windows, kernel) if is_plain else None
    if local is not None:
        logic = partial(logic, merges=True)
    if options.early is not None:
        logic = partial(logic, early=options.early)
        hidden.append((EARLY, StateKind.WINDOW))
    if late is not None:
        stream = stream._at(stream._add(UnionNode(name), *stream._ports(name, (late,), keyed=True)))
        logic = partial(logic, late=True)
    if options.until:
        logic = partial(logic, until=options.until)
    return stream._stateful(
        name,
        logic,
        kind,
        version,
        migrate,
        hidden=tuple(hidden),
        definition=f"{kernel.definition} in {windows}" if layout is None else layout.definition,
        panes=windows.definition,
        layout=layout,
        arrange=None if layout is None else _arranging(kind, _arranged_rows if layout.of_rows else _arranged_parts),
        outputs=1 if late is None else 3,
        reads=_fields_read(kernel, windows) if late is None else None,
        local=local,
        tells_by=_telling(windows) if is_plain else None,
        takes_columns=kernel.reads_names,
        results=partial(are_columns, kernel) if is_plain and isinstance(windows, TimeWindows) else None,
    )


def _fields_read(kernel: Kernel, windows: Windows) -> Mapping[str, ReadField] | None:
    """Return the fields that windows read; None if their operator needs whole values.

    Sessions and windows of counts read fields by name, and take no results of functions in place of a value.
    """
    fields = kernel.fields
    by_name = fields is not None and all(isinstance(it, str) for it in fields.values())
    return fields if by_name or isinstance(windows, TimeWindows) else None


def _telling(windows: Windows) -> TellsBy:
    """Return the partitions of time by which windows tell epochs (watermarks) apart: see `TellsBy`."""
    match windows:
        case TimeWindows(panes=panes):
            return (panes,)
        case CountWindows():
            return ()
        case _:
            return None


def add_cogroup(
    stream: StatefulOperators[Any, Any, Any],
    options: WindowOptions,
    name: str,
    others: Sequence[Any],
    version: int,
    migrate: Migrate | None,
    *,
    late: Sequence[StreamHandle[Any, Any, Any] | None] = (),
    layout: StateLayout | None = None,
) -> Any:
    """Add the operator that collects the records of a keyed stream and of others in windows.

    Args:
        stream: the keyed stream.
        options: the options of the windows.
        name: the operator's name.
        others: the other streams.
        version: the schema version of the records.
        migrate: converts the value of a record.
        late: the late records of each stream, or None for a stream without any; empty if no late records are added.
        layout: what the states hold, in words.
    """
    if not others:
        raise malformed(name, "needs at least one other stream; call .aggregate() with agg.collect() for one")
    windows, streams = options.windows, 1 + len(others)
    kind, operator = _cogroup_of(name, windows)
    if migrate is not None:
        migrate = partial(migrated_groups, migrate=checked_function(name, "migrate", migrate, "old, old_version"))
        migrate = _migration_of(kind, migrate)
    late_ones = [(number, it) for number, it in enumerate(late) if it is not None]
    logic: Any = partial(operator, windows=windows, streams=streams, late=tuple([number for number, _ in late_ones]))
    hidden = [(REACHED, StateKind.EPOCHS), (INPUTS, StateKind.FRONTIER)]
    if options.early is not None:
        logic = partial(logic, early=options.early)
        hidden.append((EARLY, StateKind.WINDOW))
    return stream._stateful(
        name,
        logic,
        kind,
        version,
        migrate,
        others=[*others, *[it for _, it in late_ones]],
        hidden=tuple(hidden),
        definition=f"groups of {streams} streams in {windows}" if layout is None else layout.definition,
        panes=windows.definition,
        layout=layout,
        arrange=None if layout is None else _arranging(kind, arranged_groups),
        outputs=1 + streams if late_ones else 1,
    )


def kernel_of(name: str, aggregators: Sequence[Any]) -> Kernel:
    """Return the kernel of the aggregators.

    Raises:
        GraphError: if there are none, or one is not an aggregator.
    """
    try:
        return compile_kernel(aggregators)
    except GraphError as error:
        raise malformed(name, f"can't be added: {error.reason}") from None


def _operator_of(name: str, windows: Windows, kernel: Kernel) -> tuple[StateKind, Callable[..., Operator]]:
    """Return the operator that aggregates records in these windows, and its kind of state.

    Raises:
        GraphError: if the windows need aggregators that can merge, and one can't.
    """
    match windows:
        case TimeWindows(is_plain=True):
            return StateKind.WINDOW, WindowAggregate
        case TimeWindows():
            check_merge(name, kernel, "windows that share panes")
            return StateKind.WINDOW, CumulateAggregate if windows.grows else SlidingAggregate
        case SessionWindows():
            check_merge(name, kernel, "sessions, of which a record can join two,")
            return StateKind.SESSION, SessionAggregate
        case CountWindows():
            return StateKind.COUNT_WINDOW, CountAggregate
        case _:
            assert_never(windows)


def _cogroup_of(name: str, windows: Windows) -> tuple[StateKind, Callable[..., Operator]]:
    """Return the operator that collects records of several streams in these windows, and its kind of state.

    Raises:
        GraphError: if the windows depend on the order of arrival; it is undefined between streams.
    """
    match windows:
        case TimeWindows(grows=True):
            raise malformed(name, f"has {windows}, which can't have groups of streams; use tumbling or sliding windows")
        case TimeWindows():
            return StateKind.WINDOW, WindowCogroup if windows.is_plain else SlidingCogroup
        case SessionWindows():
            return StateKind.SESSION, SessionCogroup
        case CountWindows():
            raise malformed(
                name,
                "has count windows, which need an order of records, but several streams have no common order; use time "
                "windows, such as tumbling(60), or sessions",
            )
        case _:
            assert_never(windows)


def _local_of(name: str, windows: Windows, kernel: Kernel) -> Callable[[], LocalAggregate] | None:
    """Return a function that makes the aggregation before records are sent; None if it would not be exact."""
    if not isinstance(windows, TimeWindows) or not isinstance(windows.panes, RegularPanes | CalendarPanes):
        return None
    return partial(LocalAggregate, name, windows, kernel.aggregators) if is_exact(kernel.aggregators) else None


def check_merge(name: str, kernel: Kernel, windows: str) -> None:
    """Check that aggregators can merge, if an operator's windows need it."""
    if not kernel.can_merge:
        raise malformed(name, f"has {windows} and can't merge {kernel.definition}; give it merge=")


def _migration_of(kind: StateKind, migrate: Migrate) -> Migrate:
    """Return the migration of a kind's states, from the user's migration of accumulators."""
    match kind:
        case StateKind.SESSION:
            return _SessionMigration(migrate)
        case StateKind.COUNT_WINDOW:
            return _CountMigration(migrate)
        case _:
            return migrate


def _arranging(kind: StateKind, arrange: Callable[[Any, Arrangement], Any]) -> Callable[[Any, Any, Arrangement], Any]:
    """Return the function that arranges a kind's states, from the one that arranges an accumulator.

    Unlike a migration, it drops none: None is an accumulator too.
    """
    match kind:
        case StateKind.SESSION:
            return partial(_arranged_some, arrange=arrange, places=slice(2, None, 3))
        case StateKind.COUNT_WINDOW:
            return partial(_arranged_some, arrange=arrange, places=slice(3, None, 2))
        case _:
            return partial(_arranged_one, arrange=arrange)


def _arranged_one(_key: Any, acc: Any, arrangement: Arrangement, *, arrange: Callable[[Any, Arrangement], Any]) -> Any:
    return arrange(acc, arrangement)


def _arranged_some(
    _key: Any, state: list[Any], arrangement: Arrangement, *, arrange: Callable[[Any, Arrangement], Any], places: slice
) -> list[Any]:
    """Return the sessions or windows of a key with other accumulators at some places."""
    state = [*state]
    state[places] = [arrange(acc, arrangement) for acc in state[places]]
    return state


def _arranged_parts(acc: Any, arrangement: Arrangement) -> Any:
    """Return an accumulator with the states of its slots in other places."""
    return packed(arrangement((acc,) if arrangement.counts == (1,) else acc))


def _arranged_rows(acc: Sequence[Any], arrangement: Arrangement) -> list[Any]:
    """Return an accumulator of rows with their columns in other places."""
    return [tuple(arrangement(row)) for row in acc]


class _SessionMigration:
    """Migrates the accumulator of each of a key's sessions; a session is dropped if its migration returns None."""

    def __init__(self, migrate: Migrate) -> None:
        self._migrate = migrate

    def __call__(self, sessions: list[Any], version: int) -> list[Any] | None:
        kept: list[Any] = []
        for first, last, acc in zip(sessions[::3], sessions[1::3], sessions[2::3], strict=True):
            new = self._migrate(acc, version)
            if new is not None:
                kept += (first, last, new)
        return kept or None


class _CountMigration:
    """Migrates the accumulator of each of a key's windows; if a migration returns None, all of them are dropped."""

    def __init__(self, migrate: Migrate) -> None:
        self._migrate = migrate

    def __call__(self, windows: list[Any], version: int) -> list[Any] | None:
        accs = [self._migrate(acc, version) for acc in windows[3::2]]
        return None if any(acc is None for acc in accs) else [*windows[:2], *_paired(windows[2::2], accs)]


def _paired(firsts: list[Any], accs: list[Any]) -> Iterator[Any]:
    for pair in zip(firsts, accs, strict=True):
        yield from pair
