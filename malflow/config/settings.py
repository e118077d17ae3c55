"""The settings of a run with the places where they were written, and runtimes made of them."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from malflow.config.entries import LAYERS, Entry, Faults, Layer, LayerName, Origin, Path, Stacks, dotted, stacked
from malflow.config.secrets import shown
from malflow.config.sections import WHOLE, Entries, Leaf, PersistenceSettings, Shape, Tables, TableShape, shape_at
from malflow.connectors.by_name import Replacement
from malflow.errors import ConfigError, ConfigFault, GraphError
from malflow.failures import Budget, Fate, OnError, Retry
from malflow.runtime.base import Declared, Runtime, declared_by, remade
from malflow.runtime.options import NOTHING, RunOptions, check_build
from malflow.runtime.processes.options import ProcessOptions
from malflow.runtime.processes.runtime import MultiProcessRuntime
from malflow.runtime.restarts import RestartPolicy
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.runtime.spark.settings import SparkOptions
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import Persistence
from malflow.streams.configured import ConfiguredBuild
from malflow.streams.stream import StreamProvider
from malflow.words import did_you_mean

if TYPE_CHECKING:
    from malflow.config.sections import RetrySettings

__all__ = [
    "KINDS",
    "On",
    "Settings",
    "applied",
    "built",
    "code_layer",
    "configured",
    "is_default",
    "kind_of",
    "settings_of",
    "table_of",
]

On: TypeAlias = Literal["single", "processes", "spark"]

KINDS: Final[Mapping[On, type[RunOptions]]] = {"spark": SparkOptions, "processes": ProcessOptions, "single": RunOptions}
"""The options of each kind of runtime, the most particular ones first."""


def kind_of(options: RunOptions) -> On:
    """Return the kind of runtime that options are for."""
    return next(kind for kind, of_kind in KINDS.items() if isinstance(options, of_kind))


def table_of(name: str, kind: On) -> str:
    """Return the table that has an option of a runtime."""
    return "run" if any(it.name == name for it in fields(RunOptions)) else kind


def is_default(options: RunOptions, name: str) -> bool:
    """Whether an option has the value that it has if nobody passes it; one worker is that of one thread."""
    value = getattr(options, name)
    if name == "parallelism" and kind_of(options) == "single":
        return value in (None, 1)
    return bool(value == getattr(type(options)(), name))


def code_layer(declared: Declared) -> Layer:
    """Return the options that the code passed, with its place; objects that no configuration can name are left out."""
    options = declared.options
    origin = Origin("code", f"code {declared.location}" if declared.location else "code")
    kind = kind_of(options)
    found: dict[Path, Entry] = {}
    for it in fields(options):
        path = (table_of(it.name, kind), it.name)
        if shape_at(path) is not None and (it.name in options.pinned or not is_default(options, it.name)):
            found |= {leaf: Entry(value, origin) for leaf, value in _leaves(path, getattr(options, it.name))}
    return found


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, FsspecBackend):
        yield from _of_backend(value)
    elif isinstance(value, RestartPolicy):
        yield from (((*path, it.name), getattr(value, it.name)) for it in fields(value))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves((*path, str(name)), inner)
    elif path != ("run", "persistence"):
        yield path, value


def _of_backend(backend: FsspecBackend) -> Iterator[tuple[Path, Any]]:
    given = backend.arguments
    if given["url"] is not None:
        yield ("run", "persistence"), given["url"]
    yield ("run", "job"), given["job"]
    given["codec"], given["compression"] = given["codec"].name, given["compression"].name
    for it in fields(PersistenceSettings):
        if it.name != "signing_key" and given[it.name] != it.default:
            yield from _leaves(("persistence", it.name), given[it.name])


Build = Callable[[StreamProvider], object]

_RUNTIMES: Final[Mapping[On, type[Runtime]]] = {
    "single": SingleThreadRuntime,
    "processes": MultiProcessRuntime,
    "spark": SparkRuntime,
}


def built(settings: Settings, build_dataflow: Build, on: On | None) -> Runtime:
    """Return a runtime of settings alone; see `Settings.runtime`."""
    kind = on or settings.run.on or "single"
    check_build(build_dataflow, _RUNTIMES[kind].__name__)
    faults = Faults()
    _check_table_of_kind(settings.stacks, kind, faults)
    faults.raise_if_any()
    make = partial(_runtime_of, kind, configured(settings, build_dataflow))
    return _checked(make, _changes(settings, kind, NOTHING), settings)


def applied(settings: Settings, runtime: Runtime, on: On | None) -> Runtime:
    """Return a runtime of settings over a runtime of the code; see `Settings.apply_to`."""
    declared = declared_by(runtime)
    options, merged = declared.options, settings.over(runtime)
    before = kind_of(options)
    kind = on or merged.run.on or before
    faults = Faults()
    _check_pinned(declared, merged.stacks, kind, faults)
    _check_moved(declared, kind, faults)
    _check_table_of_kind(merged.stacks, kind, faults)
    faults.raise_if_any()
    changes = _changes(merged, kind, options.persistence)
    build = configured(merged, declared.build_dataflow)
    if kind == before and type(runtime) is not _RUNTIMES[kind]:
        return _checked(partial(remade, runtime, build), changes, merged)  # a class of the user's
    given = {it.name: getattr(options, it.name) for it in fields(KINDS[kind]) if hasattr(options, it.name)}
    given["pinned"] = [name for name in options.pinned if name in given]
    if kind != before and "parallelism" not in options.pinned and is_default(options, "parallelism"):
        del given["parallelism"]
    return _checked(partial(_runtime_of, kind, build), given | changes, merged)


def _runtime_of(kind: On, build_dataflow: Build, options: Mapping[str, Any]) -> Runtime:
    given = dict(options)
    if kind == "single" and given.get("parallelism") is None:
        given["parallelism"] = 1
    make: Callable[..., Runtime] = _RUNTIMES[kind]
    return make(build_dataflow, **given)


def _checked(make: Callable[[Mapping[str, Any]], Runtime], changes: Mapping[str, Any], settings: Settings) -> Runtime:
    """Make a runtime; an error about its options names the settings that it is about.

    Raises:
        ConfigError: if settings contradict each other, or the code.
    """
    try:
        return make(changes)
    except GraphError as error:
        faults = [
            ConfigFault(
                dotted(path), str(entries[-1].origin), f"{dotted(path)} = {shown(path, entries[-1].value)}: {error}"
            )
            for path, entries in settings.stacks.items()
            if entries[-1].origin.layer != "code" and re.search(rf"\b{re.escape(path[-1])}\b", str(error))
        ]
        if not faults:
            raise
        raise ConfigError(faults[:1]) from error


def _changes(settings: Settings, kind: On, persistence: Persistence) -> dict[str, Any]:
    """Return the options of a runtime that are set outside the code.

    Raises:
        ConfigError: if there is an option of a store, but neither a store nor its URL.
    """
    stacks = settings.stacks
    changes: dict[str, Any] = {}
    for it in fields(KINDS[kind]):
        table = table_of(it.name, kind)
        if it.name != "persistence" and _is_set(stacks, (table, it.name)):
            value = getattr(getattr(settings, table), it.name)
            changes[it.name] = _restart_policy(value) if it.name == "restart" else value
    if stored := _of_store(settings, stacks):
        changes["persistence"] = _persistence(settings, persistence, stored)
    if changes.get("snapshots") is not None and changes.get("persistence", persistence) is NOTHING:
        raise _without_store(stacks, [("run", "snapshots")], "none is given")
    return changes


def _is_set(stacks: Stacks, path: Path) -> bool:
    """Whether a setting, or an entry of it, is set outside the code."""
    return any(entries[-1].origin.layer != "code" for _, entries in _below(stacks, path))


def _below(stacks: Stacks, path: Path) -> Iterator[tuple[Path, Any]]:
    return ((found, entries) for found, entries in stacks.items() if found[: len(path)] == path)


def _restart_policy(settings: Any) -> RestartPolicy:
    return RestartPolicy(settings.attempts, settings.backoff)


def _of_store(settings: Settings, stacks: Stacks) -> dict[str, Any]:
    """Return the arguments of the store of snapshots that are set outside the code."""
    found = {
        it.name: getattr(settings.persistence, it.name)
        for it in fields(settings.persistence)
        if _is_set(stacks, ("persistence", it.name))
    }
    if _is_set(stacks, ("run", "persistence")):
        found["url"] = settings.run.persistence
    if _is_set(stacks, ("run", "job")):
        found["job"] = settings.run.job
    return found


def _persistence(settings: Settings, persistence: Persistence, stored: dict[str, Any]) -> Persistence:
    """Return the store of snapshots, with the arguments that are set outside the code."""
    if "url" in stored and stored["url"] is None:
        return NOTHING
    if isinstance(persistence, FsspecBackend):
        return persistence.replaced(**stored)
    if "url" in stored:
        return FsspecBackend(**stored)
    stacks = settings.stacks
    names = [path for path in stacks if path[0] == "persistence"]
    job = stacks.get(("run", "job"))
    if job is not None and (persistence is not NOTHING or job[-1].origin.layer == "override"):
        names.append(("run", "job"))  # a file may name the job of programs that keep state, and of others
    if not names:
        return persistence
    has = "none is given" if persistence is NOTHING else f"the code has a {type(persistence).__name__}"
    raise _without_store(stacks, names, has)


def _without_store(stacks: Stacks, paths: Sequence[Path], has: str) -> ConfigError:
    """Return the error of settings outside the code that need a store of snapshots."""
    return ConfigError(
        ConfigFault(
            dotted(path),
            str(stacks[path][-1].origin),
            f"{dotted(path)} needs a store of snapshots, but {has}; set run.persistence to its URL",
        )
        for path in paths
        if stacks[path][-1].origin.layer != "code"
    )


def _check_pinned(declared: Declared, stacks: Stacks, kind: On, faults: Faults) -> None:
    """Refuse settings of options that the code has pinned."""
    for name in declared.options.pinned:
        paths: list[Path] = [(table_of(name, it), name) for it in {kind_of(declared.options), kind}]
        if name == "persistence":
            paths += [("run", "job"), ("persistence",)]
        for path in dict.fromkeys(paths):
            for found, entries in _below(stacks, path):
                for entry in entries:
                    if entry.origin.layer != "code":
                        reason = f"is pinned by the code at {declared.location}"
                        cure = f"remove it here, or '{name}' from pinned=[...] there"
                        faults.add(found, entry.origin, f"{dotted(found)} {reason}; {cure}")


def _check_moved(declared: Declared, kind: On, faults: Faults) -> None:
    """Refuse to move a runtime with options that the other kind lacks."""
    known = {it.name for it in fields(KINDS[kind])}
    before = kind_of(declared.options)
    for it in fields(declared.options):
        if it.name not in known and not is_default(declared.options, it.name):
            faults.add(
                (before, it.name),
                declared.location,
                f"{it.name}= is an option of {_RUNTIMES[before].__name__}, which {_RUNTIMES[kind].__name__} does not "
                "have; leave it out to run there",
            )


def _check_table_of_kind(stacks: Stacks, kind: On, faults: Faults) -> None:
    """Refuse overrides for another kind of runtime; a file may have tables for several."""
    for path, entries in stacks.items():
        if path[0] in KINDS and path[0] != kind and entries[-1].origin.layer == "override":
            reason = (
                f"{dotted(path)} has no effect on a {_RUNTIMES[kind].__name__}; run.on = '{path[0]}' chooses another"
            )
            faults.add(path, entries[-1].origin, reason)


def configured(settings: Settings, build_dataflow: Build) -> Build:
    """Return a build function with the configuration of its operators; see `Settings.configured`."""
    default = None if settings.errors.default == "fail" else _policy(settings.errors.default, settings)
    if not settings.operators and default is None:
        return build_dataflow
    stacks = settings.stacks
    replacements = {
        name: Replacement(it.url, it.options or {}, _place(stacks, name))
        for name, it in settings.operators.items()
        if it.url is not None or it.options
    }
    policies = {
        name: _policy(it.on_error, settings) for name, it in settings.operators.items() if it.on_error is not None
    }
    retries = {name: _retry(it.retry) for name, it in settings.operators.items() if it.retry is not None}
    faults = partial(_operator_faults, stacks)
    return ConfiguredBuild(build_dataflow, replacements, faults, policies, default, retries)


def _policy(fate: Fate, settings: Settings) -> OnError:
    """Return a policy with the limits of all configured ones."""
    errors = settings.errors
    spent = errors.budget
    budget = None if spent is None else Budget(spent.share, spent.window, spent.at_least)
    return OnError(fate, errors.keep, errors.keep_bytes, errors.full, budget)


def _retry(it: RetrySettings) -> Retry:
    kinds = tuple(getattr(builtins, name) for name in it.on)
    return Retry(it.attempts, it.first.total_seconds(), it.factor, it.longest.total_seconds(), kinds)


def _place(stacks: Stacks, name: str) -> str:
    """Return the place of the URL of an operator, or of its options."""
    places = {path[2]: entries[-1].origin for path, entries in _below(stacks, ("operators", name))}
    return str(places.get("url", places.get("options")))


def _operator_faults(stacks: Stacks, names: Collection[str], connected: Collection[str]) -> list[ConfigFault]:
    """Return the faults of settings of operators that the program lacks, and URLs of those that connect to nothing."""
    faults = Faults()
    for path, entries in _below(stacks, ("operators",)):
        name, origin = path[1], entries[-1].origin
        if name not in names:
            hint = did_you_mean(name, names)
            faults.add(path, origin, f"{dotted(path)}: the program has no operator '{name}'{hint}")
        elif path[2] in ("url", "options") and name not in connected:
            faults.add(path, origin, f"{dotted(path)}: operator '{name}' is neither a source nor a sink")
    return faults.found


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
