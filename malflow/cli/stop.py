"""``malflow stop``: stop a run from outside."""

from __future__ import annotations

import time
from datetime import timedelta

import click

from malflow.cli.exits import CommandError, Exit
from malflow.cli.live import answer_of, job_argument, run_named, write_document
from malflow.cli.options import SPAN, output_options
from malflow.cli.output import Output
from malflow.monitor import client
from malflow.monitor.client import FoundRun
from malflow.monitor.documents import document

__all__ = ["stop"]

_TURN = 0.1
"""The seconds between two checks whether the run has ended: short for a person. Half of it looks twice as often through
the files of runs, double ends the command later."""


@click.command(short_help="Stop a run.")
@job_argument()
@click.option("--timeout", type=SPAN, default="60s", show_default=True, help="Maximum time to wait for its end.")
@output_options
def stop(job: str, timeout: timedelta, output: Output) -> None:
    """Stop a run after its current tick, with a last snapshot where state is kept, and wait for its end.

    JOB is a job's name, a pid, or the beginning of a run's id.
    """
    run = run_named(job)
    answer_of(run, "stop")
    output.say(f"stopping {run}")
    deadline = time.monotonic() + timeout.total_seconds()
    while not client.has_ended(run):
        if time.monotonic() > deadline:
            raise CommandError(
                f"{run} was asked to stop, and has not ended within {timeout.total_seconds():g} s", Exit.NO_RUN
            )
        time.sleep(_TURN)
    status = _status_of(run)
    if output.json:
        write_document(document("stopped", {"run": run.file.run, "job": run.file.job, "status": status}))
    else:
        output.write(f"{run} has {'ended' if status == 'ended' else f'ended: {status}'}")
    if status != "ended":
        raise CommandError(f"{run} has not ended as it should ({status}); its own output says why", Exit.RUN)


def _status_of(run: FoundRun) -> str:
    """Return the status with which a run has ended; ``killed`` if it left none."""
    found = [it.file.status for it in client.recent_runs() if it.file.run == run.file.run]
    return found[0] if found and found[0] is not None else "killed"
