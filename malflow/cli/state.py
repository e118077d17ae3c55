"""``malflow state``: read the states of operators from a snapshot, without the program."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from malflow.cli import documents
from malflow.cli.exits import CommandError, Exit
from malflow.cli.groups import OrderedGroup
from malflow.cli.options import NUMBER, SNAPSHOT, output_options
from malflow.cli.output import Output, as_text
from malflow.cli.stores import backend_at, reading_backend, store_options
from malflow.cli.terminal import write_table
from malflow.cli.texts import age
from malflow.errors import short_repr
from malflow.monitor.documents import meant_keys
from malflow.snapshot.candidates import time_of
from malflow.snapshot.evolution import may_be_lost
from malflow.snapshot.manifest import Manifest
from malflow.snapshot.persistence import Wish
from malflow.snapshot.reading import read_state, wanted_manifest

__all__ = ["state"]

_at = click.option("--at", type=SNAPSHOT, default="latest", show_default=True, help="The snapshot to read.")
_trust = click.option(
    "--trust", is_flag=True, help="Unpickle states that are not signed from a store that others may write to."
)
_ABSENT = object()


@click.group(cls=OrderedGroup, short_help="Read the stored state of a job.")
def state() -> None:
    """Read the states of operators from a snapshot, without the program.

    PATH-OR-URL is the persistence of the job, such as .malflow or s3://bucket/state.
    """


@state.command("ls", short_help="List the operators that have state.")
@store_options
@_at
@output_options
def list_states(url: str, job: str | None, at: Wish, output: Output) -> None:
    """List the operators that have state, with the number of their keys."""
    manifest = wanted_manifest(backend_at(url, job), at)[1]
    found = [it for it in manifest.operators if not may_be_lost(it)]
    if output.json:
        for it in found:
            facts = {"operator": it.name, "type": it.kind, "version": it.version, "keys": it.keys}
            click.echo(documents.document("state", **facts, **_origin(manifest)))
        return
    _say_origin(manifest, output)
    write_table(
        ["operator", "kind", ">version", ">keys"],
        [[it.name, it.kind, str(it.version), f"{it.keys:,}"] for it in found],
        output,
    )


@state.command("get", short_help="Show the state of a key.")
@click.argument("operator")
@click.argument("key")
@store_options
@_at
@_trust
@output_options
def get(operator: str, key: str, url: str, job: str | None, at: Wish, trust: bool, output: Output) -> None:
    """Show the state that an operator has for a key.

    KEY is a text, or a number, a tuple or another literal of Python; '"7"' in quotes is the text 7.
    """
    backend = reading_backend(url, job, at, trust=trust)
    manifest = wanted_manifest(backend, at)[1]
    for candidate in meant_keys(key):
        found = read_state(backend, operator, key=candidate, at=at, default=_ABSENT)
        if found is not _ABSENT:
            break
    else:
        raise CommandError(
            f"operator '{operator}' has no state for key {short_repr(key)} in snapshot {manifest.snapshot}",
            Exit.SNAPSHOT,
            operator=operator,
        )
    if output.json:
        facts = {"operator": operator, "key": short_repr(candidate), "value": short_repr(found)}
        click.echo(documents.document("value", **facts, **_origin(manifest)))
        return
    _say_origin(manifest, output)
    output.write(as_text(_shown(found)))


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__
        return short_repr(value)


@state.command("keys", short_help="List the keys of an operator.")
@click.argument("operator")
@store_options
@click.option("--limit", type=NUMBER, default=100, show_default=True, help="At most so many.")
@click.option("--values", is_flag=True, help="Show their states, too.")
@_at
@_trust
@output_options
def keys(operator: str, url: str, job: str | None, at: Wish, output: Output, **options: Any) -> None:
    """List the keys of an operator, in the order of the snapshot."""
    backend = reading_backend(url, job, at, trust=options["trust"])
    manifest = wanted_manifest(backend, at)[1]
    found = read_state(backend, operator, at=at)
    limit: int = options["limit"]
    if not output.json:
        _say_origin(manifest, output)
    for key, value in islice(found, limit):
        if output.json:
            facts: dict[str, Any] = {"operator": operator, "key": short_repr(key), "value": short_repr(value)}
            click.echo(documents.document("value", **facts, **_origin(manifest)))
        else:
            text = f"{short_repr(key)}  {short_repr(value)}" if options["values"] else short_repr(key)
            output.write(as_text(text))
    if next(found, None) is not None:
        output.say(f"there are more than {limit:,}; --limit shows them")


def _origin(manifest: Manifest) -> dict[str, Any]:
    return {"snapshot": manifest.snapshot, "at": documents.moment(time_of(manifest))}


def _say_origin(manifest: Manifest, output: Output) -> None:
    output.say(f"as of snapshot {manifest.snapshot} of job '{manifest.name}', {age(time_of(manifest))}")
