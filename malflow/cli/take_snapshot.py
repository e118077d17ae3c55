"""``malflow snapshots take``: take a snapshot of a run from outside."""

from __future__ import annotations

from datetime import timedelta

import click

from malflow.cli.live import answer_of, job_argument, run_named, write_document
from malflow.cli.options import SPAN, output_options
from malflow.cli.output import Output

__all__ = ["take"]


@click.command("take", short_help="Take a snapshot of a run.")
@job_argument()
@click.option("--timeout", type=SPAN, default="60s", show_default=True, help="Maximum time to wait for it.")
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
