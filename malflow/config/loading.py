"""Load a configuration: all layers but the code's, each value checked, with all faults at once."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from malflow.config.entries import Entry, Faults, Layer, LayerName, Path, dotted
from malflow.config.files import ConfigFile, found_file
from malflow.config.reading import PROFILE, LayerReader, of_environment, of_overrides
from malflow.config.secrets import read_secret
from malflow.config.sections import WHOLE, TableShape, shape_at
from malflow.config.settings import Settings, settings_of
from malflow.connectors.address import Address
from malflow.connectors.by_name import Connection
from malflow.errors import ConfigFault, GraphError, MissingDependency
from malflow.runtime.options import RunOptions
from malflow.runtime.processes.options import ProcessOptions
from malflow.runtime.spark.settings import SparkOptions
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import NoPersistence
from malflow.store.redaction import redacted
from malflow.store.references import Secret, expanded, is_written_secret, referenced, references
from malflow.words import did_you_mean, listed

__all__ = [
    "check",
    "check_values",
    "load",
]


def check_values(layer: Layer, faults: Faults) -> None:
    """Check each value of a layer by itself; a fault has the words of the constructor."""
    for path, entry in layer.items():
        check = _check_of(path)
        if check is None:
            continue
        try:
            check(entry.value)
        except GraphError as error:
            faults.add(path, entry.origin, f"{dotted(path)}: {_without_secrets(error, entry)}")
        except MissingDependency:
            pass  # the run says so, if it gets that far


def _check_of(path: Path) -> Callable[[Any], object] | None:
    """Return the function that raises for an invalid value; None if its type is all that it needs."""
    name = path[-1]
    if path in _CHECKS:
        return _CHECKS[path]
    if path[:-1] in _CONSTRUCTORS:
        return lambda value: _CONSTRUCTORS[path[:-1]](**{name: value})
    if path[0] == "operators" and path[2:] == ("url",):
        return lambda url: url is None or Connection(Address.parse(url), {})
    around = shape_at(path[:-1])
    if isinstance(around, TableShape):
        table = around.table
        return lambda value: table(**{name: value})
    return None


def _in_memory(**options: Any) -> object:
    return FsspecBackend("memory://check", **{"allow_unsigned_pickle": True, **options})


_CONSTRUCTORS: Final[Mapping[Path, Callable[..., object]]] = {
    ("run",): partial(RunOptions, persistence=NoPersistence()),
    ("persistence",): _in_memory,
    ("processes",): ProcessOptions,
    ("spark",): SparkOptions,
}
_CHECKS: Final[Mapping[Path, Callable[[Any], object] | None]] = {
    ("run", "persistence"): lambda url: url is None or FsspecBackend(url, allow_unsigned_pickle=True),
    ("run", "job"): lambda job: _in_memory(job=job),
    ("run", "on"): None,
    ("persistence", "allow_unsigned_pickle"): None,
}


def _without_secrets(error: GraphError, entry: Entry) -> str:
    secrets = entry.value.secrets if isinstance(entry.value, Secret) else ()
    return redacted(error.reason, secrets)


_logger = logging.getLogger(__name__)


def load(
    path: str | os.PathLike[str] | None = ".",
    *,
    env: Mapping[str, str] | None = None,
    profile: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings of a file, the environment and overrides; warnings are logged.

    Args:
        path: a file, or a folder: then the nearest ``malflow.toml``, or ``pyproject.toml`` with ``[tool.malflow]``, in
            it or in a folder above. None reads no file.
        env: the environment; by default, that of the process.
        profile: the name of the profile; by default ``MALFLOW_PROFILE``.
        overrides: values by setting, such as ``{"run.parallelism": 8}``, that count more than all others. Text is
            converted. An `Override` has a place of its own.

    Raises:
        ConfigError: with all faults.
    """
    settings, faults = _examined(path, env, profile, overrides or {})
    faults.raise_if_any()
    for warning in settings.warnings:
        _logger.warning("%s", warning)
    return settings


def check(
    path: str | os.PathLike[str] | None = ".",
    *,
    env: Mapping[str, str] | None = None,
    profile: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[ConfigFault, ...]:
    """Return all faults of a configuration; the arguments are as for `load`."""
    return tuple(_examined(path, env, profile, overrides or {})[1].found)


def _examined(
    path: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    profile: str | None,
    overrides: Mapping[str, Any],
) -> tuple[Settings, Faults]:
    """Return the settings as far as they can be read, and the faults."""
    faults = Faults()
    variables = os.environ if env is None else env
    chosen = variables.get(PROFILE) or None if profile is None else profile
    layers: dict[LayerName, Layer] = {}
    file = found_file(path, faults)
    if file is not None:
        layers = _of_file(file, chosen, variables, faults)
    _check_profile(chosen, "profile" if profile is not None else PROFILE, file, faults)
    referred = set() if file is None else {*referenced(file.tables), *referenced(file.profiles)}
    layers["environment"] = of_environment(variables, faults, referred)
    layers["override"] = of_overrides(overrides, faults)
    for name in ("environment", "override"):
        check_values(layers[name], faults)
    shown = None if file is None else file.label
    usable: Mapping[LayerName, Layer] = {} if faults.found else layers
    return settings_of(usable, file=shown, profile=chosen, warnings=tuple(faults.warnings)), faults


def _check_profile(chosen: str | None, origin: str, file: ConfigFile | None, faults: Faults) -> None:
    if chosen is None or (file is not None and chosen in file.profiles) or (file is None and faults.found):
        return
    known = [] if file is None else list(file.profiles)
    where = "there is no file with profiles" if file is None else f"{file.label} has {listed(known)}"
    faults.add(("profile", chosen), origin, f"there is no profile '{chosen}'{did_you_mean(chosen, known, else_=where)}")


def _of_file(file: ConfigFile, chosen: str | None, env: Mapping[str, str], faults: Faults) -> dict[LayerName, Layer]:
    """Return the layers of a file; the profiles that are not chosen are checked, but for values from outside."""
    found: dict[LayerName, Layer] = {"file": _layer(file, None, file.tables, env, faults)}
    for name, tables in file.profiles.items():
        if name == chosen:
            found["profile"] = _layer(file, name, tables, env, faults)
        else:
            _layer(file, name, _written(tables), env, faults)
    return found


def _layer(
    file: ConfigFile, profile: str | None, tables: Mapping[str, Any], env: Mapping[str, str], faults: Faults
) -> Layer:
    def read(path: Path, raw: Any) -> Any:
        if isinstance(raw, list):
            return [read(path, it) for it in raw]
        if isinstance(raw, Mapping) and set(raw) == {"file"} and isinstance(raw["file"], str):
            return read_secret(expanded(raw["file"], env), file.path.parent)
        if not isinstance(raw, str):
            return raw
        if not references(raw) and is_written_secret(path, raw):
            reason = 'has a secret that is written in the file; write "${NAME}" or { file = "..." }'
            faults.add(path, file.origin(path, profile), f"{dotted(path)} {reason}")
        return expanded(raw, env)

    before = len(faults.found)
    reader = LayerReader(lambda path: file.origin(path, profile), faults, read)
    reader.item(tables, WHOLE)
    check_values(reader.entries, faults)
    faults.found[before:] = sorted(faults.found[before:], key=_line)
    return reader.entries


def _line(fault: ConfigFault) -> int:
    """Return the line of a fault; 0 if it has none."""
    found = re.search(r":(\d+)(?: \[|$)", fault.origin or "")
    return int(found[1]) if found else 0


def _written(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables without the values that come from variables and other files."""
    found: dict[str, Any] = {}
    for name, value in tables.items():
        if isinstance(value, Mapping) and set(value) != {"file"}:
            found[name] = _written(value)
        elif not isinstance(value, Mapping) and not any(
            isinstance(it, str) and references(it) for it in (value if isinstance(value, list) else [value])
        ):
            found[name] = value
    return found
