"""The place of a flow's state, its job and its interval, if neither its configuration nor its code has them."""

from __future__ import annotations

from datetime import timedelta

from malflow.config import Settings
from malflow.config.entries import Entry, Layer, LayerName, Origin
from malflow.config.settings import settings_of
from malflow.runtime.base import Runtime, declared_by
from malflow.snapshot.backend import FsspecBackend

__all__ = ["default_of", "with_default", "with_defaults", "without_needless_default"]

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
