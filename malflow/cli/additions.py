"""The listeners that the options of ``malflow run`` add, and the operators that those options name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from malflow.cli.adapt import Wanted
from malflow.cli.live_area import LiveArea
from malflow.cli.live_view import LiveView, live_area
from malflow.cli.output import Output
from malflow.cli.redacting import redact_of
from malflow.cli.replaying import ReplayingListener
from malflow.cli.tapping import TappingListener, check_passes_here
from malflow.config import Settings
from malflow.monitor import Monitor
from malflow.monitor.samples import SampleSettings
from malflow.nodes import Node

__all__ = ["Additions"]


class Additions:
    """The additions that the options of a command make to a script's first run.

    Args:
        options: the options; ``tap`` and ``replay`` name operators.
        settings: the settings; they override the script's own.
        output: how to write.

    Attributes:
        area: where a live view is drawn; None if standard error is not a terminal.
    """

    def __init__(self, options: Mapping[str, Any], settings: Settings, output: Output) -> None:
        self._tapped: list[str] = [*dict.fromkeys(options["tap"])]
        self._replayed: list[str] = [*dict.fromkeys(options["replay"])]
        self._settings = settings
        self._output = output
        self._is_live: bool = options["live"]
        self._taps: list[TappingListener] = []
        self.area: LiveArea | None = None

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run was stopped because the reader of standard output has exited."""
        return any(it.reader_is_gone for it in self._taps)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Within the context, there is an area for a live view, if one is wanted and there is a terminal."""
        with live_area(self._output, wanted=self._is_live) as self.area:
            yield

    def let_draw(self, draws: bool) -> None:
        """Draw the live view from now on, or not; nothing if there is none."""
        if self.area is not None:
            self.area.let_draw(draws)

    def wanted(self) -> Iterator[Wanted]:
        """Yield the operators that the next run must have."""
        for name in self._tapped:
            yield Wanted(f"--tap {name}", name, lambda node: not node.starts_stage)
        for name in self._replayed:
            yield Wanted(f"--replay {name}", name, _may_have_letters, "operator that can have dead letters")

    def take_listeners(self, kind: str) -> list[Any]:
        """Return the listeners for the next run; only the first run has those for single operators.

        Args:
            kind: the kind of its runtime.

        Raises:
            CommandError: if records can't be shown on it.
            ConfigError: if the function that hides parts of records can't be loaded.
        """
        if self._tapped:
            check_passes_here(kind)
            redact = redact_of(self._settings)
            self._taps += [TappingListener(name, redact, self._output) for name in self._tapped]
        found: list[Any] = [*self._taps, *(ReplayingListener(name, self._output) for name in self._replayed)]
        self._tapped, self._replayed = [], []
        return [*found, LiveView(self._output, self.area)] if self._is_live else found

    def allow_samples(self, monitors: Iterable[Monitor]) -> None:
        """Allow monitors to show records if the settings say so.

        Raises:
            ConfigError: if the function that hides parts of records can't be loaded.
        """
        if self._settings.serve.samples:
            for monitor in monitors:
                monitor.samples = SampleSettings(are_shown=True, redact=redact_of(self._settings))


def _may_have_letters(node: Node) -> bool:
    return node.on_error is not None
