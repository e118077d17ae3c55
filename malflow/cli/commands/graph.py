"""``malflow graph``: draw a dataflow without running it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from malflow.cli.commands.runs import answer_of
from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.logs import write_log
from malflow.cli.output.options import FLOW, NUMBER, RESTORE, FlowCommand, output_options, script_arguments
from malflow.cli.output.output import Output, document_line
from malflow.cli.output.texts import as_options
from malflow.cli.running.configuration import Configuration, config_options
from malflow.cli.running.inspection import inspect_flow
from malflow.cli.running.script import parsed
from malflow.engine.plan import Program
from malflow.monitor import client
from malflow.monitor.client import FoundRun
from malflow.runtime.base import Runtime, declared_by
from malflow.runtime.start_plan import planned
from malflow.store.redaction import safe_line, safe_repr
from malflow.words import plural

__all__ = ["graph"]

_WIDEST = 1000
"""The most columns that a run draws."""


@click.command(cls=FlowCommand, short_help="Draw a flow without running it.")
@click.argument("flow", type=FLOW, metavar="FLOW|JOB")
@script_arguments
@click.option(
    "--format",
    "form",
    type=click.Choice(["boxes", "mermaid", "dot", "svg", "json"]),
    default="boxes",
    help="boxes for a terminal, mermaid for Markdown, dot for Graphviz.",
)
@click.option("--stages", is_flag=True, help="Show the stages, between which records change workers.")
@click.option("--parts", is_flag=True, help="List the parts of sources by worker, as the run would deal them.")
@click.option("--parallelism", type=NUMBER, help="With --parts, the number of logical workers.")
@click.option("--restore", type=RESTORE, help="With --parts, continue with this snapshot, or without state.")
@click.option("--width", type=NUMBER, help="The number of columns; by default the width of the terminal.")
@click.option("--call", type=NUMBER, default=1, metavar="N", help="The script's N-th run.")
@config_options
@output_options
def graph(
    flow: str, arguments: tuple[str, ...], output: Output, configuration: Configuration, call: int, **options: Any
) -> None:
    """Draw a flow without running it, or the flow of a run.

    JOB is the job of a run on this machine, a pid, or the beginning of a run's id. A script runs up to its first
    execute(), with everything that it does before; `flow.py:build` avoids that.

    With --parts, the sources list their parts. A job with a snapshot keeps them where they are.
    """
    form = "json" if output.json else options["form"]
    width = options["width"] or shutil.get_terminal_size((100, 24)).columns
    run = None if arguments else _run_of(flow)
    if run is not None and options["parts"]:
        _write_parts(_parts_of_run(run), flow, output)
        return
    if run is not None:
        answer = answer_of(run, "drawing", format=form, stages=options["stages"], width=min(width, _WIDEST))
        _write(answer["text"], flow, output)
        return

    def look(runtime: Runtime, program: Program) -> int:
        if options["parts"]:
            return _look_at_parts(runtime, program, flow, output)
        draw = import_module("malflow.drawing").draw  # only this command draws
        _write(draw(program, form, stages=options["stages"], width=width), flow, output)
        return Exit.DONE

    target = parsed(flow)
    write_log(output)
    inspect_flow(target, arguments, look, output, configuration.settings(target), call)


def _run_of(flow: str) -> FoundRun | None:
    """Return the run that a text names; None if it names a file or a function, or no run.

    Raises:
        CommandError: if it names several runs.
    """
    if ":" in flow or flow.endswith(".py") or Path(flow).exists():
        return None
    try:
        return client.find(flow)
    except client.NoSuchRun:
        return None
    except client.AmbiguousRun as error:
        raise CommandError(str(error), Exit.USAGE) from None


def _look_at_parts(runtime: Runtime, program: Program, flow: str, output: Output) -> int:
    """List the parts by worker, or say why the run would not start."""
    found = planned(program, declared_by(runtime).options, deep=True)
    for it in found.refusals:
        output.warn(f"refused: {as_options(str(it.error))}", "red")
    if found.refusals:
        return Exit.FOUND
    if found.dealt is None:
        raise CommandError("Spark decides how many workers there are when it starts; --parallelism sets it", Exit.USAGE)
    workers = max(map(len, found.dealt.values()), default=0)
    by_worker: dict[int | None, list[tuple[str, str]]] = {
        at: [(name, safe_repr(part)) for name, them in found.dealt.items() for part in them[at]]
        for at in range(workers)
    }
    if waiting := [(name, safe_repr(part)) for name, parts in found.waiting.items() for part in parts]:
        by_worker[None] = waiting
    _write_parts(by_worker, flow, output)
    return Exit.DONE


def _parts_of_run(run: FoundRun) -> dict[int | None, list[tuple[str, str]]]:
    """Return the parts of a run that have not ended, by worker."""
    progress = answer_of(run, "progress")
    found: dict[int | None, list[tuple[str, str]]] = {it["worker"]: [] for it in progress["workers"]}
    for it in progress["parts"]:
        if it["worker"] is not None and not it["is_finished"]:
            found[it["worker"]].append((it["source"], it["part"]))
    return found


def _write_parts(by_worker: Mapping[int | None, Sequence[tuple[str, str]]], flow: str, output: Output) -> None:
    if output.json:
        for worker, parts in by_worker.items():
            told = [{"source": source, "part": part} for source, part in parts]
            click.echo(document_line("worker_parts", worker=worker, parts=told))
        return
    for worker, parts in by_worker.items():
        who = "for the first worker that has read its parts" if worker is None else f"worker {worker}"
        output.write(f"{who}: {plural(len(parts), 'part') if parts else 'none'}")
        for source, part in parts:
            output.write(safe_line(f"  {source}  {part}"))
    if not any(by_worker.values()):
        output.say(f"{flow} has no parts to read")


def _write(text: str, flow: str, output: Output) -> None:
    click.echo(text, nl=False)
    if not text:
        output.say(f"{flow} has no operators")
