"""``malflow graph``: draw a dataflow without running it."""

from __future__ import annotations

import shutil
from importlib import import_module
from typing import Any

import click

from malflow.cli.configuration import Configuration, config_options
from malflow.cli.exits import Exit
from malflow.cli.inspection import inspect_flow
from malflow.cli.logs import write_log
from malflow.cli.options import FLOW, NUMBER, output_options
from malflow.cli.output import Output
from malflow.cli.target import parsed
from malflow.engine.plan import Program
from malflow.runtime.face import Runtime

__all__ = ["graph"]


@click.command(short_help="Draw a flow without running it.")
@click.argument("flow", type=FLOW)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["boxes", "mermaid", "dot", "svg", "json"]),
    default="boxes",
    help="boxes for a terminal, mermaid for Markdown, dot for Graphviz.",
)
@click.option("--stages", is_flag=True, help="Show the stages, between which records change workers.")
@click.option("--width", type=NUMBER, help="The number of columns; by default those of the terminal.")
@click.option("--call", type=NUMBER, default=1, metavar="N", help="The script's N-th run.")
@config_options
@output_options
def graph(
    flow: str, arguments: tuple[str, ...], output: Output, configuration: Configuration, call: int, **options: Any
) -> None:
    """Draw a flow without running it.

    The script runs up to its first execute(), with everything that it does before; `flow.py:build` avoids that.
    """
    form = "json" if output.json else options["form"]
    width = options["width"] or shutil.get_terminal_size((100, 24)).columns

    def look(_runtime: Runtime, program: Program) -> int:
        draw = import_module("malflow.drawing").draw  # only this command draws
        click.echo(draw(program, form, stages=options["stages"], width=width), nl=False)
        return Exit.DONE

    target = parsed(flow)
    write_log(output)
    inspect_flow(target, arguments, look, output, configuration.settings(target), call)
