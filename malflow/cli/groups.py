"""Groups of commands that are imported when they are named, with those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from malflow.cli.output.exits import CommandError, Exit
from malflow.words import did_you_mean, error_line

__all__ = ["GROUP", "LazyGroup", "OrderedGroup"]

GROUP = "malflow.commands"
"""The entry points of commands of other packages."""


class OrderedGroup(click.Group):
    """A group with help that lists its commands in the order of the source."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of its commands."""
        return list(self.commands)


class LazyGroup(click.Group):
    """A group of commands that are imported when they are named.

    Args:
        commands_by_name: for each command, where it is (``module:name``) and its line in the help.
        with_plugins: whether commands of other packages belong to it; a name of its own can't be replaced.
    """

    def __init__(
        self,
        *args: Any,
        commands_by_name: Mapping[str, tuple[str, str]] | None = None,
        with_plugins: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._own = dict(commands_by_name or {})
        self._with_plugins = with_plugins

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of its commands, in their order, then the commands of other packages."""
        return [*self._own, *sorted(set(self._plugins()) - set(self._own))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name in self._own:
            module, _, name = self._own[cmd_name][0].partition(":")
            command: click.Command = getattr(import_module(module), name)
            return command
        plugin = self._plugins().get(cmd_name)
        return None if plugin is None else _loaded(plugin)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named; an unknown one is an error with the nearest name."""
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            raise click.UsageError(f"there is no command '{name}'{did_you_mean(name, self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        rows = [(name, line) for name, (_, line) in self._own.items()]
        rows += [
            (name, f"From {_package(it)}.") for name, it in sorted(self._plugins().items()) if name not in self._own
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _plugins(self) -> dict[str, EntryPoint]:
        return {it.name: it for it in entry_points(group=GROUP)} if self._with_plugins else {}


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value.partition(":")[0]


def _loaded(entry: EntryPoint) -> click.Command:
    try:
        command = entry.load()
    except Exception as error:
        raise CommandError(
            f"command '{entry.name}' of {_package(entry)} can't be loaded: {error_line(error)}",
            Exit.MISSING,
        ) from error
    if not isinstance(command, click.Command):
        raise CommandError(f"command '{entry.name}' of {_package(entry)} is not a click command", Exit.MISSING)
    return command
