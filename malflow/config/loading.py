"""Loading a configuration: all layers but the code's, with all faults at once."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from malflow.config.checks import check_values
from malflow.config.entries import Faults, Layer, LayerName, Path, dotted
from malflow.config.files import ConfigFile, found_file
from malflow.config.reading import PROFILE, LayerReader, of_environment, of_overrides
from malflow.config.secrets import expanded, is_written_secret, read_secret, referenced, references
from malflow.config.settings import Settings, settings_of
from malflow.config.shapes import WHOLE
from malflow.errors import ConfigFault
from malflow.words import did_you_mean, listed

__all__ = ["check", "load"]

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
