"""Whether a start may end a live run of the same job: asked on a terminal, and otherwise allowed by an option."""

from __future__ import annotations

import os
import sys

import click

from malflow.cli.output.exits import CommandError, Exit, Leave
from malflow.cli.output.output import Output
from malflow.monitor import client
from malflow.monitor.client import FoundRun
from malflow.runtime.options import RunOptions
from malflow.snapshot.persistence import place_of

__all__ = ["check_rivals"]


def check_rivals(options: RunOptions, output: Output, *, may: bool) -> None:
    """Check that a start of a job ends no live run by mistake, and say which it ends.

    Runs of this machine are found by their control sockets, so a run that has died is none. Whether one in another
    container lives can't be known: it is named, and taken over, since a scheduler must be able to move a job.

    Args:
        options: the options of the start.
        output: how to write.
        may: whether it may take over from a live run.

    Raises:
        CommandError: if there is a live run, the start may not, and nobody can be asked.
        Leave: if somebody was asked, and the answer is no.
    """
    for run in _rivals(options):
        if run.is_elsewhere:
            output.say(f"taking over from run {_label(run)}, in another container or on another machine")
            continue
        if not may:
            _ask(run, options.job)
        output.say(f"taking over from run {_label(run)}, alive: it ends at its next snapshot")


def _rivals(options: RunOptions) -> list[FoundRun]:
    place = place_of(options.persistence)
    if place is None:
        return []
    known = [it for it in client.live_runs() if (it.file.job, it.file.state) == (options.job, place)]
    return [it for it in known if it.file.pid != os.getpid()]


def _ask(run: FoundRun, job: str) -> None:
    question = f"Run {_label(run)} of job '{job}' is alive; a second one ends it, and its work since its last snapshot."
    if any(it is None or not it.isatty() for it in (sys.stdin, sys.stderr)):
        raise CommandError(f"{question} Stop it by 'malflow stop {run.file.run}', or add --take-over", Exit.FOUND)
    if not click.confirm(f"{question} Take over?", err=True):
        raise Leave(Exit.UNFORESEEN)


def _label(run: FoundRun) -> str:
    return f"{run.file.run} (pid {run.file.pid})"
