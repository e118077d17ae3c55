"""``malflow snapshots``: list, check, compare, restore, delete and take the snapshots of a job."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import click

from malflow.cli.commands.runs import answer_of, job_argument, run_named, write_document
from malflow.cli.commands.state import backend_at, reading_backend, store_options
from malflow.cli.groups import OrderedGroup
from malflow.cli.output import documents
from malflow.cli.output.exits import CommandError, Exit, Leave
from malflow.cli.output.options import NUMBER, SNAPSHOT, SPAN, output_options
from malflow.cli.output.output import Output, document_line
from malflow.cli.output.texts import age, bytes_text, write_table
from malflow.monitor import client
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.evolution import may_be_lost
from malflow.snapshot.history import ABSENT, StateChange, diff_state, fsck, snapshot_of
from malflow.snapshot.persistence import Wish
from malflow.snapshot.protocol.manifest import Manifest, StateEntry
from malflow.snapshot.protocol.manifest_log import time_of
from malflow.snapshot.reading import wanted_manifest
from malflow.snapshot.rewinding import delete_snapshots, deleted_with, rewind
from malflow.states.kinds import StateKind
from malflow.store.redaction import safe_lines
from malflow.words import plural, short_repr

__all__ = [
    "snapshots",
    "take",
]


@click.command("take", short_help="Take a snapshot of a run.")
@job_argument()
@click.option("--timeout", type=SPAN, default="60s", show_default=True, help="Maximum time to wait.")
@output_options
def take(job: str, timeout: timedelta, output: Output) -> None:
    """Take a snapshot of a run after its current tick, and wait until it is durable.

    JOB is a job's name, a pid, or the beginning of a run's id.
    """
    run = run_named(job)
    answer = answer_of(run, "snapshot", timeout=timeout.total_seconds())
    if output.json:
        write_document(answer)
    elif answer["kind"] == "accepted":
        output.write(f"{run} will take a snapshot; it is not durable yet")
    else:
        output.write(f"{run} has snapshot {answer['snapshot']}")


@click.group(cls=OrderedGroup, short_help="List, check, compare, restore and delete snapshots.")
def snapshots() -> None:
    """List, check, compare, restore and delete the snapshots of a job, without its program; take one of a run.

    PATH-OR-URL is the persistence of the job, such as .malflow or s3://bucket/state.
    """


snapshots.add_command(take)


@snapshots.command("ls", short_help="List the snapshots that can be restored.")
@store_options
@output_options
def list_snapshots(url: str, job: str | None, output: Output) -> None:
    """List the snapshots that can be restored, oldest first; a star marks the one that the next run resumes from."""
    rows = []
    backend = backend_at(url, job)
    manifests, latest = _manifests(backend)
    for manifest in manifests:
        found = snapshot_of(manifest)
        if output.json:
            click.echo(documents.snapshot_document(manifest, found, is_latest=found.id == latest))
            continue
        rows.append(
            [
                f"{'* ' if found.id == latest else ''}{found.id}",
                age(time_of(manifest)),
                f"{found.tick:,}",
                found.kind,
                f"{sum(found.operators.values()):,}",
                bytes_text(found.bytes),
                str(found.parallelism),
                f"malflow {manifest.writer.get('malflow', '?')}",
            ]
        )
    if not output.json:
        write_table([">id", "age", ">tick", "kind", ">keys", ">bytes", ">workers", "written by"], rows, output)


def _manifests(backend: FsspecBackend) -> tuple[list[Manifest], int]:
    """Return the first manifest of each snapshot, in the order of their ids, and the id of the latest one."""
    manifest_log = backend.manifest_log()
    manifest_log.find()
    found: dict[int, Manifest] = {}
    latest = 0
    for manifest in manifest_log.manifests():
        found.setdefault(manifest.snapshot, manifest)
        latest = manifest.snapshot
    return [found[number] for number in sorted(found) if number], latest


@snapshots.command("show", short_help="Show the states and files of a snapshot.")
@store_options
@click.argument("at", type=SNAPSHOT, default="latest", metavar="[ID]")
@output_options
def show(url: str, job: str | None, at: Wish, output: Output) -> None:
    """Show the states and files of a snapshot; by default of the latest one."""
    backend = backend_at(url, job)
    manifest, latest = wanted_manifest(backend, at)[1], wanted_manifest(backend, "latest")[1].snapshot
    found = snapshot_of(manifest)
    if output.json:
        document = documents.snapshot_document(manifest, found, is_latest=found.id == latest, details=True)
        click.echo(document)
        return
    output.write(
        f"snapshot {found.id} of job '{manifest.name}', {age(time_of(manifest))}, tick {found.tick:,}, "
        f"{plural(found.parallelism, 'worker')}, {bytes_text(found.bytes)} in {plural(found.files, 'file')}, "
        f"codec {manifest.codec}"
    )
    rows = [
        [it.name, it.kind, str(it.version), f"{it.keys:,}", it.definition or ""]
        for it in manifest.operators
        if not may_be_lost(it)
    ]
    write_table(["operator", "kind", ">version", ">keys", "definition"], rows, output)


@snapshots.command("verify", short_help="Read every snapshot, as a restore would.")
@store_options
@click.option("--values", is_flag=True, help="Read the states, too; their classes must be importable.")
@click.option(
    "--trust", is_flag=True, help="Unpickle states that are not signed from a store that others may write to."
)
@output_options
def verify(url: str, job: str | None, values: bool, trust: bool, output: Output) -> None:
    """Read the files of every snapshot, as a restore would; exit code 10 if one is damaged."""
    backend = reading_backend(url, job, "latest", trust=trust) if values else backend_at(url, job)
    report = fsck(backend, states=values)
    if output.json:
        click.echo(documents.verify_document(report))
    else:
        for problem in report.problems:
            output.write(f"damaged: {safe_lines(problem)}")
        for note in report.notes:
            output.write(f"note: {safe_lines(note)}")
        unused = f", {plural(len(report.unused), 'unused file')}" if report.unused else ""
        result = plural(len(report.problems), "problem") if report.problems else "no problem"
        output.write(f"{plural(report.snapshots, 'snapshot')}, {result}{unused}")
    if report.problems:
        raise Leave(Exit.FOUND)


@snapshots.command("diff", short_help="Count the keys with states that differ between two snapshots.")
@store_options
@click.argument("before", type=SNAPSHOT, metavar="ID")
@click.argument("after", type=SNAPSHOT, default="latest", metavar="[ID]")
@click.option("--operator", help="This operator only.")
@click.option("--values", is_flag=True, help="Show the keys with their states.")
@click.option(
    "--trust", is_flag=True, help="Unpickle states that are not signed from a store that others may write to."
)
@output_options
def diff(url: str, job: str | None, before: Wish, after: Wish, output: Output, **options: Any) -> None:
    """Count the keys of each operator that are new, gone or changed between two snapshots.

    If an operator has changed its kind or its windows, all of its former keys count as gone, and all others as new.
    """
    backend = reading_backend(url, job, after, trust=options["trust"])
    olds, news = (_states(backend, it) for it in (before, after))
    names = [it for it in dict.fromkeys([*olds, *news]) if options["operator"] in (None, it)]
    if not names:
        raise CommandError(f"no snapshot has a state of an operator '{options['operator']}'", Exit.USAGE)
    for name in names:
        old, new = olds.get(name), news.get(name)
        if old is None or new is None or (old.kind, old.panes) != (new.kind, new.panes):
            counts = {"added": new.keys if new else 0, "removed": old.keys if old else 0, "changed": 0}
            _write_counts(name, counts, output)
            continue
        counts = {"added": 0, "removed": 0, "changed": 0}
        for change in diff_state(backend, name, before, after):
            counts[_kind(change)] += 1
            if options["values"]:
                _write_change(name, change, output)
        _write_counts(name, counts, output)


def _states(backend: FsspecBackend, at: Wish) -> dict[str, StateEntry]:
    """Return the states of a snapshot."""
    return {it.name: it for it in wanted_manifest(backend, at)[1].operators if not may_be_lost(it)}


def _kind(change: StateChange) -> str:
    return "added" if change.before is ABSENT else "removed" if change.after is ABSENT else "changed"


def _write_counts(name: str, counts: dict[str, int], output: Output) -> None:
    if output.json:
        click.echo(document_line("difference", operator=name, **counts))
    elif any(counts.values()) or not output.quiet:
        output.write(safe_lines(f"{name}: +{counts['added']:,} -{counts['removed']:,} ~{counts['changed']:,} keys"))


def _write_change(name: str, change: StateChange, output: Output) -> None:
    before, after = (None if it is ABSENT else short_repr(it) for it in (change.before, change.after))
    if output.json:
        key = short_repr(change.key)
        click.echo(document_line("change", operator=name, key=key, before=before, after=after))
        return
    mark = {"added": "+", "removed": "-", "changed": "~"}[_kind(change)]
    states = " -> ".join(it for it in (before, after) if it is not None)
    output.write(safe_lines(f"  {mark} {short_repr(change.key)}  {states}"))


@snapshots.command("restore", short_help="Make an earlier snapshot the latest one.")
@store_options
@click.argument("at", type=SNAPSHOT, metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
def restore(url: str, job: str | None, at: Wish, yes: bool, output: Output) -> None:
    """Make an earlier snapshot the latest one. The next run resumes from it.

    A run of the job that is still alive is fenced: it stops, and loses its work since its last snapshot.
    """
    backend = backend_at(url, job)
    wanted, newest = wanted_manifest(backend, at)[1], wanted_manifest(backend, "latest")[1]
    for it in newest.operators:
        if it.kind == StateKind.SINK.word and wanted.snapshot != newest.snapshot:
            output.say(
                f"sink '{it.name}' may have written more than snapshot {wanted.snapshot} has: if it is exactly-once, a "
                "start is refused unless it has --sinks accept_duplicates"
            )
    for run in client.live_runs():
        if run.file.job == wanted.name:
            output.say(f"the run of job {run} is alive: if its state is this one, it is fenced, and stops")
    output.say("a run of this job that is still alive is fenced, and stops: its work since its last snapshot is lost")
    _ask(f"Make snapshot {wanted.snapshot} the latest of job '{wanted.name}'?", yes)
    number = rewind(backend, at)
    if output.json:
        click.echo(document_line("restored", job=wanted.name, snapshot=number))
    else:
        output.write(f"snapshot {number} is the latest of job '{wanted.name}'; the next run resumes from it")


@snapshots.command("rm", short_help="Delete a snapshot and all older ones.")
@store_options
@click.argument("number", type=NUMBER, metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
def remove(url: str, job: str | None, number: int, yes: bool, output: Output) -> None:
    """Delete a snapshot and all older ones; the newest ones stay. A run of the job is not disturbed."""
    backend = backend_at(url, job)
    ids = deleted_with(backend, number)
    _ask(f"Delete {plural(len(ids), 'snapshot')} ({', '.join(map(str, ids))}) of job '{backend.job}'?", yes)
    deleted = delete_snapshots(backend, number)
    if output.json:
        click.echo(document_line("deleted", job=backend.job, snapshots=deleted))
    else:
        output.write(f"deleted {plural(len(deleted), 'snapshot')}: {', '.join(map(str, deleted))}")


def _ask(question: str, yes: bool) -> None:
    """Ask on standard error whether to do it.

    Raises:
        CommandError: if nobody can be asked.
        Leave: if the answer is no.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError(f"{question} Nobody can be asked here; add --yes", Exit.USAGE)
    if not click.confirm(question, err=True):
        raise Leave(Exit.UNFORESEEN)
