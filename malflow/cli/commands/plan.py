"""``malflow plan``: the effect of a start on the state of a job, or why it would be refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from malflow.cli.commands.check import refusal_elsewhere
from malflow.cli.commands.plan_rows import Row, as_json, rows_of
from malflow.cli.output.error_report import error_document
from malflow.cli.output.exits import Exit
from malflow.cli.output.logs import write_log
from malflow.cli.output.options import FLOW, NUMBER, RENAME, RESTORE, FlowCommand, output_options, script_arguments
from malflow.cli.output.output import Output, document_line
from malflow.cli.output.texts import age, as_options, bytes_text
from malflow.cli.running.adapting import folder_of
from malflow.cli.running.configuration import Configuration, config_options
from malflow.cli.running.inspection import inspect_flow
from malflow.cli.running.script import Target, parsed
from malflow.config.settings import kind_of
from malflow.engine.plan import Program
from malflow.engine.sink_transactions import check_deliveries
from malflow.runtime.base import Runtime, declared_by
from malflow.runtime.options import RunOptions
from malflow.runtime.start_plan import StartPlan, planned
from malflow.snapshot.history import snapshot_of
from malflow.snapshot.protocol.manifest_log import time_of
from malflow.store.redaction import safe_line
from malflow.words import iso, plural

__all__ = ["plan"]


@click.command(cls=FlowCommand, short_help="Show the effect of a start on a job's state, without starting.")
@click.argument("flow", type=FLOW)
@script_arguments
@click.option("--on", type=click.Choice(["single", "processes", "spark"]), help="Plan it for this kind of runtime.")
@click.option("--parallelism", type=NUMBER, help="The number of logical workers.")
@click.option("--persistence", metavar="URL", help="The folder or store with the state, such as s3://bucket/state.")
@click.option("--job", help="The name of the job that owns the state.")
@click.option("--restore", type=RESTORE, help="Begin with this snapshot, with the one of a time, or without state.")
@click.option("--rename", type=RENAME, multiple=True, help="An operator with state has another name now.")
@click.option(
    "--drop",
    metavar="NAME",
    multiple=True,
    help="The state of an operator that is gone, or has changed, may be dropped.",
)
@click.option("--recovery", type=click.Choice(["strict", "previous"]), help="What to do about a damaged snapshot.")
@click.option(
    "--sinks",
    type=click.Choice(["exactly_once", "accept_duplicates"]),
    help="What to do if a sink is ahead of the snapshot.",
)
@click.option("--deep", is_flag=True, help="Read the states, try migrations, and list the parts of sources.")
@click.option("--call", type=NUMBER, default=1, metavar="N", help="The script's N-th run.")
@config_options
@output_options
def plan(
    flow: str, arguments: tuple[str, ...], output: Output, configuration: Configuration, call: int, **options: Any
) -> None:
    """Show the effect of a start on the state of a job, or why it would be refused; nothing is started or written.

    A line begins with = for state that is kept, ^ migrated, > renamed, + new, - dropped or ! changed, ~ for keys that
    change workers, and . for sources and sinks.

    If the start would be refused, the exit code is 10, and standard error lists all refusals. Without --deep, only
    manifests are read. With it, this process reads all states, and calls your migrations and your sources' listing of
    parts. These may reach other systems. The script runs up to its first
    execute(), with everything that it does before; `flow.py:build` avoids that.
    """
    target = parsed(flow)

    def look(runtime: Runtime, program: Program) -> int:
        return _looked_at(runtime, program, target, output, deep=options["deep"])

    write_log(output)
    inspect_flow(target, arguments, look, output, configuration.settings(target), call)


def _looked_at(runtime: Runtime, program: Program, target: Target, output: Output, *, deep: bool) -> int:
    options = declared_by(runtime).options
    kind = kind_of(options)
    check_deliveries(program, keeps=options.persistence.is_enabled)
    options.check_places()
    if kind != "single" and getattr(options, "processes", None) != 0:  # with none, it runs in this process
        refusal = refusal_elsewhere(program, kind)
        if refusal is not None:
            raise refusal
    found = planned(program, options, deep=deep)
    rows = rows_of(found, program)
    if output.json:
        click.echo(_document(found, rows, options, target, kind))
    else:
        output.write(_heading(found, options, target))
        for line in _lines(rows):
            output.write(line)
        _tell(found, output)
    return Exit.FOUND if found.refusals else Exit.DONE


def _heading(found: StartPlan, options: RunOptions, target: Target) -> str:
    place, manifest = folder_of(options.persistence), found.manifest
    if place is None:
        return f"{target.title} keeps no state: each start begins with none"
    job = f"job {options.job}"
    if manifest is None and not found.states:
        return f"{job} in {place}, program {target.title}"
    if manifest is None:
        reason = f"has no snapshot in {place}" if found.latest is None else f"begins without snapshot {found.latest}"
        return f"{job} {reason}: everything starts new, program {target.title}"
    facts = snapshot_of(manifest)
    keys = plural(sum(facts.operators.values()), "key")
    older = "" if found.latest == facts.id else f"; the latest is {found.latest}"
    return (
        f"{job}, snapshot {facts.id} ({age(time_of(manifest))}, {keys}, {bytes_text(facts.bytes)}{older}), "
        f"program {target.title}"
    )


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield aligned lines, refused ones in red; each begins with the mark and the word of its change."""
    cells = [(f"{it.mark} {it.change}", safe_line(it.shown_name), safe_line(it.type), it.shown_keys) for it in rows]
    widths = [max((len(row[at]) for row in cells), default=0) for at in range(4)]
    for it, (change, name, kind, keys) in zip(rows, cells, strict=True):
        refused = ""
        if it.refusals:
            numbers = ", ".join(map(str, it.refusals))
            cures = f": {', or '.join(it.cures)}" if it.cures else ""
            refused = f"REFUSED ({numbers}){cures}"
        end = "  ".join(safe_line(text) for text in (it.note, refused) if text)
        middle = f"  {kind:{widths[2]}}  {keys:>{widths[3]}}" if kind or keys else ""
        line = f"  {change:{widths[0]}}  {name:{widths[1]}}{middle}  {end}".rstrip()
        yield click.style(line, fg="red") if it.refusals else line


def _tell(found: StartPlan, output: Output) -> None:
    """Write the unknown facts, and the refusals as the start would word them, on standard error."""
    for text in found.unknown:
        output.say(f"not known here: {text}")
    for number, it in enumerate(found.refusals, 1):
        output.warn(f"refused ({number}): {as_options(str(it.error))}", "red")
    if found.refusals:
        output.warn(f"{plural(len(found.refusals), 'refusal')}: this program would not start", "red")


def _document(found: StartPlan, rows: Sequence[Row], options: RunOptions, target: Target, kind: str) -> str:
    manifest = found.manifest
    facts = None if manifest is None else snapshot_of(manifest)
    return document_line(
        "plan",
        flow=target.title,
        runtime=kind,
        job=options.job,
        persistence=folder_of(options.persistence),
        snapshot=None if facts is None else facts.id,
        latest=found.latest,
        at=None if manifest is None else iso(time_of(manifest)),
        tick=None if facts is None else facts.tick,
        keys=None if facts is None else sum(facts.operators.values()),
        bytes=None if facts is None else facts.bytes,
        workers=None if facts is None else facts.parallelism,
        parallelism=found.workers,
        starts=not found.refusals,
        rows=as_json(rows),
        refusals=[{**error_document(it.error), "states": list(it.states)} for it in found.refusals],
        unknown=list(found.unknown),
    )
