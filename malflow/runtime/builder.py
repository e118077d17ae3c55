"""A runtime configured step by step: the options that all runtimes have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Self

from malflow.events import Listener
from malflow.snapshot.persistence import Persistence

__all__ = ["RuntimeBuilder"]


class RuntimeBuilder:
    """The options of a runtime, each a method that gives the builder back; they are checked when it is built."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}

    def persistence(self, persistence: Persistence) -> Self:
        """Set where state is kept between runs."""
        return self._with("persistence", persistence)

    def snapshots(self, interval: timedelta) -> Self:
        """Set how often state is kept."""
        return self._with("snapshots", interval)

    def parallelism(self, workers: int) -> Self:
        """Set how many logical workers there are."""
        return self._with("parallelism", workers)

    def restore(self, snapshot: Literal["latest"] | int | None) -> Self:
        """Set what to begin with: ``"latest"``, the id of a snapshot, or None to begin with nothing."""
        return self._with("restore", snapshot)

    def recovery(self, recovery: Literal["strict", "previous"]) -> Self:
        """Set what to do if the snapshot to begin with is damaged."""
        return self._with("recovery", recovery)

    def renamed(self, renamed: Mapping[str, str]) -> Self:
        """Set the new names of stateful operators by their old ones."""
        return self._with("renamed", renamed)

    def allow_dropped_state(self, names: Collection[str]) -> Self:
        """Set which stateful operators' state may be dropped where the program has no place for it."""
        return self._with("allow_dropped_state", names)

    def debug(self, debug: bool = True) -> Self:
        """Turn on the checks that cost too much to run always."""
        return self._with("debug", debug)

    def listeners(self, listeners: Sequence[Listener]) -> Self:
        """Set who hears of ticks, snapshots and the end of a run."""
        return self._with("listeners", listeners)

    def _with(self, name: str, value: object) -> Self:
        self._options[name] = value
        return self
