"""``malflow plugins``: the connectors and commands that are installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from malflow.cli.documents import plugin_document
from malflow.cli.groups import GROUP
from malflow.cli.options import output_options
from malflow.cli.output import Output
from malflow.cli.terminal import write_table
from malflow.connectors.by_name import OF_FILES, SINKS, SOURCES
from malflow.words import error_line

__all__ = ["plugins"]


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
    for group, kind in ((SOURCES, "source"), (SINKS, "sink"), (GROUP, "command")):
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
