"""``malflow graph``: draw a dataflow without running it."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from malflow.cli.commands.runs import answer_of
from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.logs import write_log
from malflow.cli.output.options import FLOW, NUMBER, FlowCommand, output_options, script_arguments
from malflow.cli.output.output import Output
from malflow.cli.running.configuration import Configuration, config_options
from malflow.cli.running.inspection import inspect_flow
from malflow.cli.running.script import parsed
from malflow.engine.plan import Program
from malflow.monitor import client
from malflow.monitor.client import FoundRun
from malflow.runtime.base import Runtime

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
    """
    form = "json" if output.json else options["form"]
    width = options["width"] or shutil.get_terminal_size((100, 24)).columns
    run = None if arguments else _run_of(flow)
    if run is not None:
        answer = answer_of(run, "drawing", format=form, stages=options["stages"], width=min(width, _WIDEST))
        _write(answer["text"], flow, output)
        return

    def look(_runtime: Runtime, program: Program) -> int:
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


def _write(text: str, flow: str, output: Output) -> None:
    click.echo(text, nl=False)
    if not text:
        output.say(f"{flow} has no operators")
