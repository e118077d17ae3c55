"""``malflow state``: read the states of operators from a snapshot, without the program, or from a live run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from malflow.cli.commands.runs import answer_of, run_named
from malflow.cli.groups import OrderedGroup
from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.options import NUMBER, SNAPSHOT, output_options
from malflow.cli.output.output import Output, document_line
from malflow.cli.output.texts import age, write_table
from malflow.monitor import client
from malflow.monitor.asks import MOST_LISTED
from malflow.monitor.client import FoundRun
from malflow.monitor.documents import meant_keys
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.evolution import may_be_lost
from malflow.snapshot.persistence import Wish
from malflow.snapshot.protocol.manifest import JOB, Manifest
from malflow.snapshot.protocol.manifest_log import time_of
from malflow.snapshot.reading import read_state, wanted_manifest
from malflow.store.redaction import safe_lines
from malflow.words import did_you_mean, iso, short_repr

__all__ = [
    "backend_at",
    "reading_backend",
    "state",
    "store_options",
]

_F = TypeVar("_F", bound=Callable[..., Any])


def store_options(command: _F) -> _F:
    """Add the argument that names the store, and the option that names the job in it."""
    for decorate in (
        click.option("--job", help="The job, if the store has several."),
        click.argument("url", metavar="PATH-OR-URL"),
    ):
        command = decorate(command)
    return command


def backend_at(url: str, job: str | None, *, trust: bool = True, codec: str = "pickle") -> FsspecBackend:
    """Return the persistence of a job.

    Args:
        url: the path or URL; on this machine, the folder of the job itself will do.
        job: the name of the job; None for the only one.
        trust: whether a store that others may write to is accepted, since no value is unpickled or all are trusted.
        codec: the codec of the states.

    Raises:
        GraphError: if it is not a store, or its pickles are not trusted.
        CommandError: if there is no such job.
    """
    if "://" not in url:
        url, job = _local(Path(url), job)
    backend = FsspecBackend(url, job=job or "default", allow_unsigned_pickle=trust, codec=codec)
    if backend.manifest_log().find() is None:
        raise CommandError(
            f"{backend!r} has no snapshots: no run has begun there; check the URL and --job", Exit.SNAPSHOT
        )
    return backend


def reading_backend(url: str, job: str | None, at: Wish, *, trust: bool) -> FsspecBackend:
    """Return the persistence of a job to read its states, with the codec that wrote them.

    Args:
        url: the path or URL.
        job: the name of the job; None for the only one.
        at: the snapshot.
        trust: whether to unpickle states that are not signed from a store that others may write to.

    Raises:
        GraphError: if it is not a store, or its pickles are not trusted.
        CommandError: if there is no such job.
        SnapshotError: if there is no such snapshot.
    """
    codec = wanted_manifest(backend_at(url, job), at)[1].codec
    if codec not in ("pickle", "msgpack"):
        raise CommandError(f"the states were written with codec '{codec}', which only the program knows", Exit.SNAPSHOT)
    return backend_at(url, job, trust=trust, codec=codec)


def _local(folder: Path, job: str | None) -> tuple[str, str | None]:
    """Return the folder of the jobs and the name of the job, if there is only one or the folder is its own."""
    try:
        is_folder = folder.is_dir()
    except OSError as error:  # a name that is too long, or a folder that is closed
        raise CommandError(f"there is no folder '{folder}': {error.strerror}", Exit.SNAPSHOT) from error
    if not is_folder:
        raise CommandError(f"there is no folder '{folder}'", Exit.SNAPSHOT)
    if job is None and (folder / JOB).is_file():
        return str(folder.resolve().parent), folder.resolve().name
    names = sorted(it.parent.name for it in folder.glob(f"*/{JOB}"))
    if job is not None and job not in names:
        raise CommandError(f"'{folder}' has no job '{job}'{did_you_mean(job, names)}", Exit.SNAPSHOT)
    if job is None and len(names) > 1 and "default" not in names:
        raise CommandError(f"'{folder}' has several jobs; write --job with one of {', '.join(names)}", Exit.USAGE)
    return str(folder), job or (names[0] if len(names) == 1 else None)


_at = click.option("--at", type=SNAPSHOT, default="latest", show_default=True, help="The snapshot to read.")
_trust = click.option(
    "--trust", is_flag=True, help="Unpickle states that are not signed from a store that others may write to."
)
_ABSENT = object()
_NO_SNAPSHOT = {"snapshot": None, "at": None}


def _stored_or_live(command: _F) -> _F:
    """Add the argument that names the store, its options, and ``--live`` (to ask a run instead)."""
    for decorate in (
        click.option("--live", metavar="JOB", help="Ask the running job, by its name, a pid or the id of the run."),
        _trust,
        _at,
        click.option("--job", help="The job, if the store has several."),
        click.argument("url", required=False, metavar="[PATH-OR-URL]"),
    ):
        command = decorate(command)
    return command


def _is_live(options: Mapping[str, Any]) -> bool:
    """Whether a run is to be asked.

    Raises:
        UsageError: if neither a run nor a store is named, or both are.
    """
    context = click.get_current_context()
    if options["live"] is None:
        if options["url"] is None:
            raise click.UsageError("name the store, PATH-OR-URL, or a run that is to be asked, --live JOB", context)
        return False
    given = [name for name in ("url", "job", "trust") if options[name]] + ["at"] * (options["at"] != "latest")
    if given:
        shown = "PATH-OR-URL" if given[0] == "url" else f"--{given[0]}"
        raise click.UsageError(f"--live asks a running job, which has no {shown}; leave one of them out", context)
    return True


@click.group(cls=OrderedGroup, short_help="Read the stored state of a job.")
def state() -> None:
    """Read the states of operators from a snapshot, without the program, or from a job that runs.

    PATH-OR-URL is the persistence of the job, such as .malflow or s3://bucket/state. With --live, the running
    job answers with its states after its last tick.
    """


@state.command("ls", short_help="List the operators that have state.")
@_stored_or_live
@output_options
def list_states(output: Output, **options: Any) -> None:
    """List the operators that have state, with the number of their keys."""
    if _is_live(options):
        _list_live(options["live"], output)
        return
    manifest = wanted_manifest(backend_at(options["url"], options["job"]), options["at"])[1]
    found = [it for it in manifest.operators if not may_be_lost(it)]
    if output.json:
        for it in found:
            facts = {"operator": it.name, "type": it.kind, "version": it.version, "keys": it.keys}
            click.echo(document_line("state", **facts, **_origin(manifest)))
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
@_stored_or_live
@output_options
def get(operator: str, key: str, output: Output, **options: Any) -> None:
    """Show the state that an operator has for a key.

    KEY is a text, or a number, a tuple or another literal of Python; '"7"' in quotes is the text 7.
    """
    if _is_live(options):
        _get_live(options["live"], operator, key, output)
        return
    at: Wish = options["at"]
    backend = reading_backend(options["url"], options["job"], at, trust=options["trust"])
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
        click.echo(document_line("value", **facts, **_origin(manifest)))
        return
    _say_origin(manifest, output)
    output.write(safe_lines(_whole_repr(found)))


def _whole_repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__
        return short_repr(value)


@state.command("keys", short_help="List the keys of an operator.")
@click.argument("operator")
@click.option("--limit", type=NUMBER, default=100, show_default=True, help="Maximum number of rows to print.")
@click.option("--values", is_flag=True, help="Show their states, too.")
@_stored_or_live
@output_options
def keys(operator: str, output: Output, **options: Any) -> None:
    """List the keys of an operator, in the order of the snapshot or, of a live run, in any order."""
    if _is_live(options):
        _keys_live(options["live"], operator, options["limit"], output, values=options["values"])
        return
    at: Wish = options["at"]
    backend = reading_backend(options["url"], options["job"], at, trust=options["trust"])
    manifest = wanted_manifest(backend, at)[1]
    found = read_state(backend, operator, at=at)
    limit: int = options["limit"]
    if not output.json:
        _say_origin(manifest, output)
    for key, value in islice(found, limit):
        if output.json:
            facts: dict[str, Any] = {"operator": operator, "key": short_repr(key), "value": short_repr(value)}
            click.echo(document_line("value", **facts, **_origin(manifest)))
        else:
            text = f"{short_repr(key)}  {short_repr(value)}" if options["values"] else short_repr(key)
            output.write(safe_lines(text))
    if next(found, None) is not None:
        output.say(f"there are more than {limit:,}; --limit shows them")


def _list_live(job: str, output: Output) -> None:
    """List the operators with states to query; with many keys, the number is a lower bound."""
    run = run_named(job)
    progress = answer_of(run, "progress")
    rows = []
    for it in progress["operators"]:
        try:
            answer = client.ask(run, "state", operator=it["name"], limit=MOST_LISTED)
        except client.Refused:  # it has none, or only windows
            continue
        count = len(answer["states"])
        rows.append([it["name"], f"{count:,}{'+' if count == MOST_LISTED else ''}"])
        if output.json:
            facts = {"operator": it["name"], "type": None, "version": None, "keys": count}
            click.echo(document_line("state", **facts, **_NO_SNAPSHOT))
    if not output.json:
        output.say(f"as of tick {progress['tick']:,} of {run}")
        write_table(["operator", ">keys"], rows, output)


def _get_live(job: str, operator: str, key: str, output: Output) -> None:
    run = run_named(job)
    answer = answer_of(run, "state", operator=operator, key=key)
    if not answer["states"]:
        text = f"operator '{operator}' has no state for key {short_repr(key)} in tick {answer['tick']} of {run}"
        raise CommandError(text, Exit.SNAPSHOT, operator=operator)
    _write_live(run, answer, operator, output, "{value}")


def _keys_live(job: str, operator: str, limit: int, output: Output, *, values: bool) -> None:
    run = run_named(job)
    answer = answer_of(run, "state", operator=operator, limit=min(limit, MOST_LISTED))
    _write_live(run, answer, operator, output, "{key}  {value}" if values else "{key}")


def _write_live(run: FoundRun, answer: Mapping[str, Any], operator: str, output: Output, form: str) -> None:
    """Write the states in the answer of a run: a line each, or a document as of a snapshot, but without one."""
    if not output.json:
        output.say(f"as of tick {answer['tick']:,} of {run}")
    for it in answer["states"]:
        if output.json:
            click.echo(document_line("value", operator=operator, **it, **_NO_SNAPSHOT))
        else:
            output.write(safe_lines(form.format(**it)))


def _origin(manifest: Manifest) -> dict[str, Any]:
    return {"snapshot": manifest.snapshot, "at": iso(time_of(manifest))}


def _say_origin(manifest: Manifest, output: Output) -> None:
    output.say(f"as of snapshot {manifest.snapshot} of job '{manifest.name}', {age(time_of(manifest))}")
