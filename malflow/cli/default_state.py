"""The place for a flow's state if neither its configuration nor its code names one."""

from __future__ import annotations

from malflow.config import Settings
from malflow.config.entries import Entry, Layer, LayerName, Origin
from malflow.config.settings import settings_of
from malflow.runtime.declared import declared_by
from malflow.runtime.face import Runtime

__all__ = ["default_of", "with_default", "without_needless_default"]

_PERSISTENCE = ("run", "persistence")


def with_default(settings: Settings, place: str) -> Settings:
    """Return settings with a default place for the state, which any other setting overrides."""
    layers = dict(settings.layers) | {"default": {_PERSISTENCE: Entry(place, Origin("default", "--reload"))}}
    return settings_of(layers, file=settings.file, profile=settings.profile, warnings=settings.warnings)


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
