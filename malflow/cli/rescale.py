"""``malflow rescale``: change the number of workers of a run from outside."""

from __future__ import annotations

from datetime import timedelta

import click

from malflow.cli.live import answer_of, job_argument, run_named, write_document
from malflow.cli.options import SPAN, output_options
from malflow.cli.output import Output
from malflow.words import plural

__all__ = ["rescale"]


@click.command(short_help="Change the number of workers of a run.")
@job_argument()
@click.argument("workers", type=click.IntRange(1), metavar="N")
@click.option("--timeout", type=SPAN, default="60s", show_default=True, help="Maximum time to wait.")
@output_options
def rescale(job: str, workers: int, timeout: timedelta, output: Output) -> None:
    """Change the number of logical workers of a run to N, after its current tick.

    JOB is a job's name, a pid, or the beginning of a run's id.
    """
    run = run_named(job)
    answer = answer_of(run, "rescale", parallelism=workers, timeout=timeout.total_seconds())
    if output.json:
        write_document(answer)
    elif answer["kind"] == "accepted":
        output.write(f"{run} will have {plural(workers, 'worker')} after its current tick, which takes long")
    else:
        output.write(f"{run} has {plural(workers, 'worker')}")
