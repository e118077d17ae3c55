"""A builder for the options that all runtimes share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self

from malflow.durations import Duration
from malflow.events import Listener
from malflow.snapshot.persistence import Persistence

__all__ = ["RuntimeBuilder"]


class RuntimeBuilder:
    """Collects the options of a runtime. Each method returns the builder; `build` checks the options."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}

    def persistence(self, persistence: Persistence) -> Self:
        """Set where snapshots are saved."""
        return self._with("persistence", persistence)

    def snapshots(self, interval: Duration) -> Self:
        """Set how often to take a snapshot."""
        return self._with("snapshots", interval)

    def parallelism(self, workers: int) -> Self:
        """Set the number of logical workers."""
        return self._with("parallelism", workers)

    def restore(self, snapshot: Literal["latest"] | int | datetime | None) -> Self:
        """Set the snapshot to restore: ``"latest"``, an id, a datetime, or None to start without state."""
        return self._with("restore", snapshot)

    def recovery(self, recovery: Literal["strict", "previous"]) -> Self:
        """Set what to do if the snapshot to restore is damaged."""
        return self._with("recovery", recovery)

    def renamed(self, renamed: Mapping[str, str]) -> Self:
        """Set the new names of stateful operators by their old ones."""
        return self._with("renamed", renamed)

    def allow_dropped_state(self, names: Collection[str]) -> Self:
        """Set the stateful operators that may lose their state if the program no longer has them."""
        return self._with("allow_dropped_state", names)

    def debug(self, debug: bool = True) -> Self:
        """Turn on checks that are too expensive for production."""
        return self._with("debug", debug)

    def listeners(self, listeners: Sequence[Listener]) -> Self:
        """Set the listeners for ticks, snapshots and the end of a run."""
        return self._with("listeners", listeners)

    def sinks(self, sinks: Literal["exactly_once", "accept_duplicates"]) -> Self:
        """Set whether a run may start before the last commit of a transactional sink."""
        return self._with("sinks", sinks)

    def at_end(self, at_end: Literal["finish", "keep"] | None) -> Self:
        """Set whether the end of the input closes windows and fires timers, or keeps them for the next run."""
        return self._with("at_end", at_end)

    def pinned(self, names: Collection[str]) -> Self:
        """Set the names of options that no configuration may change."""
        return self._with("pinned", names)

    def _with(self, name: str, value: object) -> Self:
        self._options[name] = value
        return self
