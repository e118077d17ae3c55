"""``malflow top``: watch a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import timedelta

import click

from malflow.cli.exits import CommandError
from malflow.cli.live import answer_of, job_argument, run_named, write_document
from malflow.cli.options import SPAN, output_options
from malflow.cli.output import Output
from malflow.cli.screens import line_of, screen_of
from malflow.cli.terminal import redrawn
from malflow.monitor import client
from malflow.monitor.client import FoundRun
from malflow.monitor.documents import Document

__all__ = ["top"]


@click.command(short_help="Watch a run.")
@job_argument(required=False)
@click.option("--every", type=SPAN, help="The time between two looks; by default 1s on a terminal, else 10s.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Look so many times, then leave.")
@output_options
def top(job: str | None, every: timedelta | None, count: int | None, output: Output) -> None:
    """Watch a run: its operators with their rates, redrawn each second, until it ends or Ctrl-C.

    Elsewhere than on a terminal, write a line each 10 seconds. JOB is a job's name, a pid, or the beginning of a
    run's id; without it, the only run.
    """
    run = run_named(job)
    is_terminal = sys.stdout.isatty()
    seconds = every.total_seconds() if every is not None else 1.0 if is_terminal else 10.0
    looks = _looks(run, seconds, count)
    if output.json:
        for progress in looks:
            write_document(progress)
    elif is_terminal:
        redrawn(map(screen_of, looks))
    else:
        for progress in looks:
            output.write(line_of(progress))
    if client.has_ended(run):
        output.say(f"{run} has ended")


def _looks(run: FoundRun, seconds: float, count: int | None) -> Iterator[Document]:
    """Yield the progress of a run until it has ended.

    Raises:
        CommandError: if it does not answer, and has not ended.
    """
    number = 0
    while True:
        try:
            progress = answer_of(run, "progress")
        except CommandError:
            if client.has_ended(run):
                return
            raise
        yield progress
        number += 1
        if number == count:
            return
        time.sleep(seconds)
