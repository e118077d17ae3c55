"""``malflow why``: say why nothing comes out of an operator of a run, or of all of it."""

from __future__ import annotations

import time
from datetime import timedelta

import click

from malflow.cli.live import answer_of, job_argument, run_named, write_document
from malflow.cli.options import SPAN, output_options
from malflow.cli.output import Output
from malflow.store.redaction import safe_lines

__all__ = ["why"]

_WATCHED = 2.0
"""The seconds between two looks."""


@click.command(short_help="Say why nothing comes out of a run.")
@job_argument()
@click.argument("operator", required=False, metavar="[OPERATOR]")
@click.option("--watch", is_flag=True, help="Ask again every two seconds, until Ctrl-C.")
@click.option("--timeout", type=SPAN, default="30s", show_default=True, help="Maximum time to wait for the tick.")
@output_options
def why(job: str, operator: str | None, watch: bool, timeout: timedelta, output: Output) -> None:
    """Find out why nothing comes out of an operator of a run, or of all its sinks, and what to change.

    JOB is a job's name, a pid, or the beginning of a run's id.
    """
    run = run_named(job)
    while True:
        answer = answer_of(run, "why", operator=operator, timeout=timeout.total_seconds())
        if output.json:
            write_document(answer)
        else:
            output.write(safe_lines(answer["text"]))
        if not watch:
            return
        time.sleep(_WATCHED)
