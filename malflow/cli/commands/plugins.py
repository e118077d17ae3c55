"""``malflow plugins`` and ``malflow completion``: what is installed, and the shell completion script."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click
from click.shell_completion import get_completion_class

from malflow.cli.groups import GROUP
from malflow.cli.output.documents import plugin_document
from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.options import output_options
from malflow.cli.output.output import Output
from malflow.cli.output.texts import write_table
from malflow.connectors.by_name import OF_FILES, SINKS, SOURCES
from malflow.store.opening import STORES
from malflow.words import error_line

__all__ = [
    "completion",
    "plugins",
]


@click.command(short_help="List connectors and commands that are installed.")
@output_options
def plugins(output: Output) -> None:
    """List the schemes of URLs, the formats of files and the commands that are installed, and whether they load."""
    rows = [_row(kind, it) for kind, it in _entries()]
    if output.json:
        for row in rows:
            click.echo(plugin_document(row))
        return
    cells = [
        [row["name"], row["type"], row["package"] or "", row["version"] or "", row["error"] or "yes"] for row in rows
    ]
    write_table(["name", "type", "package", "version", "loads"], cells, output)


def _entries() -> Iterator[tuple[str, EntryPoint]]:
    """Yield the entry points with their kinds, by kind and name."""
    for group, kind in ((SOURCES, "source"), (SINKS, "sink"), (STORES, "store"), (GROUP, "command")):
        yield from ((kind, it) for it in sorted(entry_points(group=group), key=lambda it: it.name))


def _row(kind: str, entry: EntryPoint) -> dict[str, Any]:
    name, of_files = entry.name.removeprefix(OF_FILES), entry.name.startswith(OF_FILES)
    return {
        "name": name,
        "type": f"{kind} of files" if of_files else kind,
        "package": None if entry.dist is None else entry.dist.name,
        "version": None if entry.dist is None else entry.dist.version,
        "loads": (error := _fault(entry)) is None,
        "error": error,
    }


def _fault(entry: EntryPoint) -> str | None:
    """Return why an entry point can't be loaded; None if it can."""
    try:
        entry.load()
    except Exception as error:  # noqa: BLE001 - of another package
        return error_line(error)
    return None


_HELP = """Print the shell completion script.

\b
bash:  eval "$(malflow completion bash)"     in ~/.bashrc
zsh:   eval "$(malflow completion zsh)"      in ~/.zshrc
fish:  malflow completion fish | source      in ~/.config/fish/config.fish
"""


@click.command(help=_HELP, short_help="Print the completion of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell completion script."""
    kind = get_completion_class(shell)
    if kind is None:
        raise CommandError(f"there is no completion for {shell}", Exit.USAGE)
    click.echo(kind(ctx.find_root().command, {}, "malflow", "_MALFLOW_COMPLETE").source())
