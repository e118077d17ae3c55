"""``malflow check``: build a dataflow without running it, and list its mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from malflow.cli.configuration import Configuration, config_options
from malflow.cli.documents import check_document
from malflow.cli.exits import Exit
from malflow.cli.findings import Finding, findings_of
from malflow.cli.inspection import inspect_flow
from malflow.cli.logs import write_log
from malflow.cli.options import FLOW, NUMBER, FlowCommand, output_options, script_arguments
from malflow.cli.output import Output
from malflow.cli.target import Target, parsed
from malflow.config.settings import kind_of
from malflow.engine.plan import Program
from malflow.engine.sink_transactions import check_deliveries
from malflow.nodes import StatefulNode
from malflow.runtime.base import Runtime, declared_by
from malflow.words import plural

__all__ = ["check"]


@click.command(cls=FlowCommand, short_help="Build a flow without running it, and list its mistakes.")
@click.argument("flow", type=FLOW)
@script_arguments
@click.option("--on", type=click.Choice(["single", "processes", "spark"]), help="Check it for this kind of runtime.")
@click.option("--persistence", metavar="URL", help="The store of the run; exactly-once sinks need one.")
@click.option("--call", type=NUMBER, default=1, metavar="N", help="The script's N-th run.")
@config_options
@output_options
def check(
    flow: str, arguments: tuple[str, ...], call: int, output: Output, configuration: Configuration, **_options: Any
) -> None:
    """Build a flow without running it, and list its mistakes.

    An error ends with exit code 3; warnings, such as a result that nothing reads, with 10; notes with 0. The script
    runs up to its first execute(), with everything that it does before; `flow.py:build` avoids that.
    """
    target = parsed(flow)

    def look(runtime: Runtime, program: Program) -> int:
        return _looked_at(runtime, program, target, output)

    write_log(output)
    inspect_flow(target, arguments, look, output, configuration.settings(target), call)


def _looked_at(runtime: Runtime, program: Program, target: Target, output: Output) -> int:
    options = declared_by(runtime).options
    check_deliveries(program, keeps=options.persistence.is_enabled)
    kind = kind_of(options)
    found = [*dict.fromkeys(findings_of(program, options, kind))]  # an operator may be several vertices
    if output.json:
        click.echo(check_document(target.title, kind, program, found))
    else:
        output.write(f"{target.title}: {', '.join(_counts(program))}, {_PLACES[kind]}")
        for line in _lines(found):
            output.write(line)
    return Exit.FOUND if any(it.level == "warning" for it in found) else Exit.DONE


_PLACES = {"single": "on one thread", "processes": "in several processes", "spark": "on Spark"}


def _counts(program: Program) -> Iterator[str]:
    states = sum(isinstance(it.node, StatefulNode) for it in program.vertices)
    counts: list[tuple[Any, str]] = [
        (len({it.node.name for it in program.vertices}), "operator"),
        (len(program.stages), "stage"),
        (len(program.sources), "source"),
        (len(program.sinks), "sink"),
        (states, "state"),
    ]
    yield from (plural(count, noun) for count, noun in counts)


def _lines(found: list[Finding]) -> Iterator[str]:
    for it in found:
        place = f" [{it.location}]" if it.location else ""
        yield f"  {it.level}: {it.message}{place}"
