"""The settings of a run, with the places where they were written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from malflow.config.building import On, applied, built, configured
from malflow.config.code import code_layer
from malflow.config.entries import LAYERS, Layer, LayerName, Stacks, dotted, stacked
from malflow.config.secrets import shown
from malflow.config.shapes import WHOLE, Entries, Leaf, Shape, TableShape
from malflow.config.tables import Tables
from malflow.runtime.base import Runtime, declared_by
from malflow.streams.stream import StreamProvider

__all__ = ["Settings", "settings_of"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings(Tables):
    """The settings of a run: tables, such as ``settings.run.parallelism``. The repr hides secrets.

    Attributes:
        layers: the settings that each layer has, by name.
        file: the file that was read, or None.
        profile: the profile, or None.
        warnings: what to know of the configuration, a line each, without secrets.
    """

    layers: Mapping[LayerName, Layer] = field(default_factory=dict)
    file: str | None = None
    profile: str | None = None
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        found = (f"{dotted(path)}={shown(path, entries[-1].value)}" for path, entries in sorted(self.stacks.items()))
        return f"Settings({', '.join(found)})"

    @property
    def stacks(self) -> Stacks:
        """The entries of each setting that some layer has; the last one counts."""
        return stacked(self.layers[name] for name in LAYERS if name in self.layers)

    def over(self, runtime: Runtime) -> Settings:
        """Return the settings with a runtime of the code as the layer that all others hide."""
        layers = dict(self.layers) | {"code": code_layer(declared_by(runtime))}
        return settings_of(layers, file=self.file, profile=self.profile, warnings=self.warnings)

    def runtime(self, build_dataflow: Callable[[StreamProvider], object], *, on: On | None = None) -> Runtime:
        """Return a runtime with these settings.

        Args:
            build_dataflow: builds the dataflow.
            on: the kind of runtime; by default ``run.on``, or one thread.

        Raises:
            ConfigError: if settings contradict each other.
            GraphError: if `build_dataflow` is not a plain function.
        """
        return built(self, build_dataflow, on)

    def apply_to(self, runtime: Runtime, *, on: On | None = None) -> Runtime:
        """Return a runtime to run in place of one that the code has made, with these settings over its own.

        Args:
            runtime: the runtime of the code; not changed.
            on: the kind of runtime; by default ``run.on``, or that of the code.

        Raises:
            ConfigError: if the code has pinned an option that is set here, if settings contradict each other, or if the
                other kind of runtime lacks an option of the code.
        """
        return applied(self, runtime, on)

    def configured(self, build_dataflow: Callable[[StreamProvider], object]) -> Callable[[StreamProvider], object]:
        """Return a build function with the configured URLs of its sources and sinks.

        It raises a `ConfigError` if the program lacks an operator that is configured.
        """
        return configured(self, build_dataflow)


def settings_of(
    layers: Mapping[LayerName, Layer],
    *,
    file: str | None = None,
    profile: str | None = None,
    warnings: tuple[str, ...] = (),
) -> Settings:
    """Return the settings of layers."""
    nested: dict[str, Any] = {}
    for path, entries in stacked(layers[name] for name in LAYERS if name in layers).items():
        table = nested
        for name in path[:-1]:
            table = table.setdefault(name, {})
        table[path[-1]] = entries[-1].value
    tables = _made(nested, WHOLE)
    values = {it.name: getattr(tables, it.name) for it in fields(tables)}
    return Settings(**values, layers=dict(layers), file=file, profile=profile, warnings=warnings)


def _made(value: Any, shape: Shape | None) -> Any:
    """Return a table, or the value of a setting."""
    match shape:
        case TableShape(table):
            return table(**{name: _made(it, shape.members[name]) for name, it in value.items()})
        case Entries(inner):
            return {name: _made(it, inner) for name, it in value.items()}
        case Leaf() | None:
            return value
