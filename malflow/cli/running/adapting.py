"""The runtime that runs in place of a script's own: its settings, listeners and default state."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.live import LiveArea, LiveView, live_area
from malflow.cli.output.output import Output
from malflow.cli.running.serving import redact_of
from malflow.cli.running.tapping import ReplayingListener, TappingListener, check_passes_here
from malflow.config import Settings
from malflow.config.entries import Entry, Layer, LayerName, Origin
from malflow.config.settings import settings_of
from malflow.events import Listener
from malflow.monitor import Monitor
from malflow.monitor.samples import SampleSettings
from malflow.nodes import Node
from malflow.runtime.base import Runtime, declared_by, remade
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import Persistence
from malflow.streams.stream import StreamProvider
from malflow.words import did_you_mean, short_repr

__all__ = [
    "Additions",
    "Wanted",
    "adapted",
    "default_of",
    "folder_of",
    "listened",
    "with_default",
    "with_defaults",
    "without_needless_default",
]

_PERSISTENCE = ("run", "persistence")
_JOB = ("run", "job")
_SNAPSHOTS = ("run", "snapshots")

_INTERVAL = timedelta(seconds=10)
"""What a crash undoes, and how late an exactly-once sink may be; `malflow new` writes the same interval."""


def with_default(settings: Settings, place: str) -> Settings:
    """Return settings with a default place for the state. Any other setting overrides it."""
    layers = dict(settings.layers) | {"default": {_PERSISTENCE: Entry(place, Origin("default", "--reload"))}}
    return settings_of(layers, file=settings.file, profile=settings.profile, warnings=settings.warnings)


def with_defaults(settings: Settings, runtime: Runtime, job: str) -> Settings:
    """Return settings with defaults for a script's runtime. Any other setting overrides them.

    The state of a store that the settings name belongs to the job of the script's name. But a store with a job named
    ``default``, as earlier versions named all, and none of this name, continues with it. A store with neither an
    interval in the settings nor in the code gets a snapshot every 10 seconds: who names a store on the command line
    expects to lose nothing by a crash.

    Args:
        settings: the settings over the code's own.
        runtime: the script's own.
        job: the name for the job.

    Raises:
        ConfigError: if the settings contradict each other, or the script.
        SnapshotError: if the store can't be read.
    """
    settings = without_needless_default(settings, runtime)
    own = declared_by(runtime).options
    added: dict[tuple[str, ...], Entry] = {}
    if _names_store(settings) and own.snapshots is None and not _is_set(_SNAPSHOTS, settings, runtime):
        added[_SNAPSHOTS] = Entry(_INTERVAL, Origin("default", "for a store without an interval"))
    if not (own.persistence.is_enabled or _JOB in settings.stacks or "persistence" in own.pinned):
        backend = declared_by(settings.apply_to(runtime)).options.persistence
        if isinstance(backend, FsspecBackend) and (not _exists(backend) or _exists(backend.replaced(job=job))):
            added[_JOB] = Entry(job, Origin("default", "the name of the script"))
    if not added:
        return settings
    layers = dict(settings.layers)
    layers["default"] = {**layers.get("default", {}), **added}
    return settings_of(layers, file=settings.file, profile=settings.profile, warnings=settings.warnings)


def _names_store(settings: Settings) -> bool:
    """Whether the settings name a store."""
    entries = settings.stacks.get(_PERSISTENCE, ())
    return bool(entries) and entries[-1].value is not None


def _is_set(setting: tuple[str, str], settings: Settings, runtime: Runtime) -> bool:
    """Whether the settings have a value for an option of a run, or the code has pinned it."""
    return setting in settings.stacks or setting[1] in declared_by(runtime).options.pinned


def _exists(backend: FsspecBackend) -> bool:
    return backend.manifest_log().find() is not None


def default_of(settings: Settings) -> str | None:
    """Return the place that `with_default` has added; None if there is none, or another setting overrides it."""
    entries = settings.stacks.get(_PERSISTENCE, ())
    return str(entries[-1].value) if entries and entries[-1].origin.layer == "default" else None


def without_needless_default(settings: Settings, runtime: Runtime) -> Settings:
    """Return the settings for a script's runtime, without the default place if the script sets or pins its own."""
    own = declared_by(runtime).options
    if default_of(settings) is None or not (own.persistence.is_enabled or "persistence" in own.pinned):
        return settings
    layers: dict[LayerName, Layer] = {name: layer for name, layer in settings.layers.items() if name != "default"}
    return settings_of(layers, file=settings.file, profile=settings.profile, warnings=settings.warnings)


Build = Callable[[StreamProvider], object]


@dataclass(frozen=True, slots=True)
class Wanted:
    """An operator that an option of a command names.

    Attributes:
        option: the option, as it was written.
        name: the name of the operator.
        fits: whether the option accepts an operator.
        kind: the word for such operators in messages.
    """

    option: str
    name: str
    fits: Callable[[Node], bool] = lambda _: True
    kind: str = "operator"


def adapted(
    runtime: Runtime,
    settings: Settings,
    note: Callable[[Exception], object] = lambda _: None,
    wanted: Sequence[Wanted] = (),
) -> Runtime:
    """Return a runtime of a script with other options, perhaps of another kind.

    Args:
        runtime: the script's own.
        settings: the settings over its options.
        note: called with an error of the command's own when the dataflow is built; the script may catch it.
        wanted: operators that the flow must have.

    Raises:
        ConfigError: if the settings contradict each other, or the script.
    """
    settings = without_needless_default(settings, runtime)
    made = settings.apply_to(runtime)
    renamed = [Wanted(f"--rename {old}={new}", new) for old, new in (settings.run.renamed or {}).items()]
    build = _named_check(declared_by(made).build_dataflow, [*renamed, *wanted], note)
    return remade(made, build, {})


def listened(runtime: Runtime, listeners: Sequence[Listener]) -> Runtime:
    """Return a runtime like another one, with these listeners instead of its own."""
    return remade(runtime, declared_by(runtime).build_dataflow, {"listeners": listeners})


def folder_of(persistence: Persistence) -> str | None:
    """Return where state is kept, for messages; None if it is not kept."""
    if not persistence.is_enabled:
        return None
    if not isinstance(persistence, FsspecBackend) or persistence.own_store is not None:
        return short_repr(persistence)
    return persistence._shown_url().removeprefix(f"{Path.cwd()}{os.sep}")


def _named_check(build: Build, wanted: Sequence[Wanted], note: Callable[[Exception], object]) -> Build:
    """Return a function that builds the same dataflow, and fails if it lacks an operator that an option names."""
    if not wanted:
        return build

    def checked(provider: StreamProvider) -> object:
        result = build(provider)
        provider._graph.complete()  # with the operators on dead letters
        for it in wanted:
            vertices = provider._graph.vertices
            names = [*dict.fromkeys(vertex.node.name for vertex in vertices if it.fits(vertex.node))]
            if it.name not in names:
                error = CommandError(
                    f"{it.option}: the flow has no {it.kind} '{it.name}'{did_you_mean(it.name, names)}", Exit.USAGE
                )
                note(error)
                raise error
        return result

    return checked


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
