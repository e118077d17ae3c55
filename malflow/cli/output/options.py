"""The kinds of values of options, and the options that all commands have."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from malflow.cli.output.output import Output
from malflow.durations import EXAMPLES, read_duration

__all__ = [
    "FLOW",
    "NUMBER",
    "RENAME",
    "RESTORE",
    "SNAPSHOT",
    "SPAN",
    "FlowCommand",
    "output_options",
    "script_arguments",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_WHOLE = re.compile("0*[1-9][0-9]{0,17}", re.ASCII)


class _Span(click.ParamType):  # type: ignore[type-arg] # not generic before click 8.5
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = read_duration(value)
        if not found:
            self.fail(f"{value!r} is not a time above zero, such as {EXAMPLES}", param, ctx)
        return found


class _Number(click.ParamType):  # type: ignore[type-arg] # not generic before click 8.5
    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not _WHOLE.fullmatch(value):
            self.fail(f"{value!r} is not a whole number of one or more", param, ctx)
        return int(value)


class _Restore(click.ParamType):  # type: ignore[type-arg] # not generic before click 8.5
    name = "latest|ID|time|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if value == "latest":
            return value
        if value == "none":
            return None
        if value.isdecimal() and value.isascii():
            return int(value)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not latest, none, the id of a snapshot, or a time in ISO format", param, ctx)
        return moment.astimezone()


class _Rename(click.ParamType):  # type: ignore[type-arg] # not generic before click 8.5
    name = "old=new"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        old, equals, new = value.partition("=")
        if not equals or not old or not new:
            self.fail(f"{value!r} must be two names of an operator: old=new", param, ctx)
        return old, new


class _Flow(click.ParamType):  # type: ignore[type-arg] # not generic before click 8.5
    name = "flow"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


NUMBER = _Number()
"""A whole number of one or more."""
SPAN = _Span()
"""A time above zero, such as 10s."""


class _Snapshot(_Restore):
    name = "latest|ID|time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "none":
            self.fail("'none' is not a snapshot", param, ctx)
        return super().convert(value, param, ctx)


RESTORE = _Restore()
"""A snapshot to begin with."""
SNAPSHOT = _Snapshot()
"""A snapshot."""
RENAME = _Rename()
"""An old and a new name."""
FLOW = _Flow()
"""A script or module, perhaps with a name in it."""
script_arguments = click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS]")
"""A decorator that adds the arguments of a script, for a `FlowCommand`."""


class FlowCommand(click.Command):
    """A command on a flow. The script may have arguments of its own after ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments. One without ``--`` is refused: it may be a mistyped value of an option."""
        own = len(args) - args.index("--") - 1 if "--" in args else 0
        rest = super().parse_args(ctx, args)
        given: tuple[str, ...] = ctx.params.get("arguments") or ()
        if len(given) > own and not ctx.resilient_parsing:
            raise click.UsageError(f"unexpected argument {given[0]!r}; arguments of the script follow '--'", ctx)
        return rest


def output_options(command: _F) -> _F:
    """Add the options that say what to write and how; the command gets them as `output`."""

    def collected(*args: Any, **given: Any) -> Any:
        names = {"as_json": "json", "quiet": "quiet", "verbose": "verbose", "traceback": "full", "color": "color"}
        output = Output(**{field: given.pop(name) for name, field in names.items()})
        return command(*args, output=output, **given)

    collected.__doc__ = command.__doc__
    collected.__name__ = command.__name__
    collected.__click_params__ = [*getattr(command, "__click_params__", [])]  # type: ignore[attr-defined] # click's
    for decorate in (
        click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Use colours."),
        click.option("--traceback", is_flag=True, help="Show all frames of errors, malflow's too."),
        click.option("--json", "as_json", is_flag=True, help="Write JSON documents, one on each line."),
        click.option("-v", "--verbose", is_flag=True, help="Write the log on standard error."),
        click.option("-q", "--quiet", is_flag=True, help="Write nothing but results and errors."),
    ):
        decorate(collected)
    return collected  # type: ignore[return-value] # with other parameters
