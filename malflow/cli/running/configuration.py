"""The configuration of a command's runs: a file, a profile and overrides, which take precedence over the script."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from malflow.cli.running.adapting import with_default
from malflow.cli.running.script import Target
from malflow.cli.running.serving import CONFIGURED
from malflow.config import Override, Settings, check, load
from malflow.config.sections import RunSettings
from malflow.errors import ConfigFault

__all__ = ["Configuration", "config_options"]

_F = TypeVar("_F", bound=Callable[..., Any])

_SET = re.compile(r'((?:[^"=]|"(?:[^"\\]|\\.)*")+)=(.*)', re.DOTALL)
_NAMES: Final[Mapping[str, str]] = {"rename": "renamed", "drop": "allow_dropped_state"}
"""The settings of options of a command that have another name."""

_OF_RUN: Final = frozenset(it.name for it in fields(RunSettings))


class _Set(click.ParamType):  # type: ignore[type-arg] # not generic before click 8.5
    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        found = _SET.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} must be a setting and its value, such as run.parallelism=8", param, ctx)
        return found[1].strip(), found[2]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration that a command was asked to use.

    Attributes:
        file: the file; None for the one beside the script.
        profile: the profile; None for that of the environment.
        overrides: the settings on the command line.
        default_persistence: where to keep the state if neither the configuration nor the code says where.
    """

    file: str | None
    profile: str | None
    overrides: Mapping[str, Override]
    default_persistence: str | None = None

    def settings(self, target: Target | None = None) -> Settings:
        """Return the settings for a flow; without one, or for a module, the file is that of this folder.

        Raises:
            ConfigError: with all faults.
        """
        settings = load(self._place(target), profile=self.profile, overrides=self.overrides)
        return settings if self.default_persistence is None else with_default(settings, self.default_persistence)

    def faults(self, target: Target | None = None) -> tuple[ConfigFault, ...]:
        """Return all faults of these settings."""
        return check(self._place(target), profile=self.profile, overrides=self.overrides)

    def _place(self, target: Target | None) -> str | Path:
        if self.file is not None:
            return self.file
        return Path() if target is None or target.file is None else target.file.resolve().parent


def config_options(command: _F) -> _F:
    """Add the options of configurations; the command gets them as `configuration`.

    Options of the command that are named as settings of ``[run]`` are overrides too.
    """

    def collected(*args: Any, config: str | None, profile: str | None, overrides: Any, **given: Any) -> Any:
        default: str | None = given.pop("default_persistence")
        configuration = Configuration(config, profile, _overrides(overrides), default)
        return command(*args, configuration=configuration, **given)

    collected.__doc__ = command.__doc__
    collected.__name__ = command.__name__
    collected.__click_params__ = [*getattr(command, "__click_params__", [])]  # type: ignore[attr-defined] # click's
    for decorate in (
        click.option("--default-persistence", hidden=True),
        click.option("--set", "overrides", type=_Set(), multiple=True, help="A setting, such as run.debug=true."),
        click.option("--profile", metavar="NAME", help="The profile of the configuration."),
        click.option(
            "--config", type=click.Path(), help="The configuration; without it, malflow.toml beside the script."
        ),
    ):
        decorate(collected)
    return collected  # type: ignore[return-value] # with other parameters


def _overrides(pairs: tuple[tuple[str, str], ...]) -> dict[str, Override]:
    """Return the settings on the command line, with their places: from ``--set``, and from options of their own.

    Raises:
        UsageError: if both have the same setting.
    """
    context = click.get_current_context()
    found = {key: Override(value, f"--set {key}") for key, value in pairs}
    for name, value in context.params.items():
        setting = _NAMES.get(name, name)
        if name == "serve" and value not in (None, CONFIGURED):
            key = "serve.address"
            if key in found:
                raise click.UsageError("--serve and --set serve.address are the same setting; leave one out", context)
            found[key] = Override(value, "--serve")
        if setting not in _OF_RUN or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        key = f"run.{setting}"
        if key in found:
            raise click.UsageError(f"--{name} and --set {key} are the same setting; leave one out", context)
        found[key] = Override(dict(value) if name == "rename" else value, f"--{name}")
    return found
