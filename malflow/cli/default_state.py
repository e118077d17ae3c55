"""The place for a flow's state, and the name of its job, if neither its configuration nor its code has them."""

from __future__ import annotations

from malflow.config import Settings
from malflow.config.entries import Entry, Layer, LayerName, Origin
from malflow.config.settings import settings_of
from malflow.runtime.declared import declared_by
from malflow.runtime.face import Runtime
from malflow.snapshot.backend import FsspecBackend

__all__ = ["default_of", "with_default", "with_job", "without_needless_default"]

_PERSISTENCE = ("run", "persistence")
_JOB = ("run", "job")


def with_default(settings: Settings, place: str) -> Settings:
    """Return settings with a default place for the state, which any other setting overrides."""
    layers = dict(settings.layers) | {"default": {_PERSISTENCE: Entry(place, Origin("default", "--reload"))}}
    return settings_of(layers, file=settings.file, profile=settings.profile, warnings=settings.warnings)


def with_job(settings: Settings, runtime: Runtime, name: str) -> Settings:
    """Return settings with a default name for the job of a script's runtime, which any other setting overrides.

    A job that the code keeps has the name that it has there. A store with a job named ``default``, as earlier versions
    named all, and none of this name, continues with it.

    Args:
        settings: the settings over those of the code.
        runtime: the script's own.
        name: the name.

    Raises:
        ConfigError: if the settings contradict each other, or the script.
        SnapshotError: if the store can't be read.
    """
    settings = without_needless_default(settings, runtime)
    own = declared_by(runtime).options
    if own.persistence.is_enabled or _JOB in settings.stacks or "persistence" in own.pinned:
        return settings
    backend = declared_by(settings.apply_to(runtime)).options.persistence
    if not isinstance(backend, FsspecBackend) or (_exists(backend) and not _exists(backend.replaced(job=name))):
        return settings
    entry = Entry(name, Origin("default", "the name of the script"))
    layers = dict(settings.layers)
    layers["default"] = {**layers.get("default", {}), _JOB: entry}
    return settings_of(layers, file=settings.file, profile=settings.profile, warnings=settings.warnings)


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
