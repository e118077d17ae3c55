"""The operator of each kind of windows, and the form of its states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, assert_never

from malflow.aggregators.fuse import Kernel
from malflow.operators.contract import Operator
from malflow.operators.counted import CountAggregate
from malflow.operators.session import SessionAggregate
from malflow.operators.sliding import SlidingAggregate
from malflow.operators.window import WindowAggregate
from malflow.state_kinds import StateKind
from malflow.streams.arguments import malformed
from malflow.windows import CountWindows, SessionWindows, TimeWindows, Windows

__all__ = ["migration_of", "operator_of"]

Migrate = Callable[[Any, int], Any]


def operator_of(name: str, windows: Windows, kernel: Kernel) -> tuple[StateKind, Callable[..., Operator]]:
    """Return the operator that aggregates records in windows of a kind, and the kind of its state.

    Raises:
        GraphError: if the windows need aggregators that can merge, and one can't.
    """
    match windows:
        case TimeWindows(is_plain=True):
            return StateKind.WINDOW, WindowAggregate
        case TimeWindows():
            _check_merge(name, kernel, "windows that share panes")
            return StateKind.WINDOW, SlidingAggregate
        case SessionWindows():
            _check_merge(name, kernel, "sessions, of which a record can join two,")
            return StateKind.SESSION, SessionAggregate
        case CountWindows():
            return StateKind.COUNT_WINDOW, CountAggregate
        case _:
            assert_never(windows)


def _check_merge(name: str, kernel: Kernel, windows: str) -> None:
    if not kernel.can_merge:
        raise malformed(name, f"has {windows} and can't merge {kernel.definition}; give it merge=")


def migration_of(kind: StateKind, migrate: Migrate) -> Migrate:
    """Return the migration of a kind's states, by a user's one of accumulators."""
    match kind:
        case StateKind.SESSION:
            return _SessionMigration(migrate)
        case StateKind.COUNT_WINDOW:
            return _CountMigration(migrate)
        case _:
            return migrate


class _SessionMigration:
    """Migrates the accumulator of each of a key's sessions; those whose migration returns None are dropped."""

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
