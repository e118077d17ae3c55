"""``malflow ps``, ``stop``, ``rescale`` and ``why``: find the runs of this user, and ask and steer them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.options import SPAN, output_options
from malflow.cli.output.output import Output
from malflow.cli.output.texts import age, write_table
from malflow.monitor import client
from malflow.monitor.client import FoundRun
from malflow.monitor.documents import Document, document
from malflow.store.redaction import safe_lines
from malflow.words import plural

__all__ = [
    "answer_of",
    "job_argument",
    "ps",
    "rescale",
    "run_named",
    "stop",
    "why",
    "write_document",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_CODES = {
    "BadRequest": Exit.USAGE,
    "UnknownOperator": Exit.USAGE,
    "GraphError": Exit.FLOW,
    "OperatorError": Exit.OPERATOR,
    "SnapshotError": Exit.SNAPSHOT,
    "FencedError": Exit.FENCED,
    "RunFailed": Exit.RUN,
    "Timeout": Exit.NO_RUN,
    "Busy": Exit.NO_RUN,
    "RunEnded": Exit.NO_RUN,
}


class _Job(click.ParamType):  # type: ignore[type-arg] # not generic before click 8.5
    name = "job"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = dict.fromkeys(run.file.name for run in client.live_runs())
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def job_argument(*, required: bool = True) -> Callable[[_F], _F]:
    """Return a decorator that adds the argument that names a run."""
    return click.argument("job", type=_Job(), required=required, metavar="JOB" if required else "[JOB]")


def run_named(job: str | None) -> FoundRun:
    """Return the run with a name.

    Args:
        job: its job, its pid, or the beginning of its id; None if there is only one.

    Raises:
        CommandError: if there is no such run, or there are several.
    """
    try:
        return client.find(job)
    except client.NoSuchRun as error:
        raise CommandError(str(error), Exit.NO_RUN) from None
    except client.AmbiguousRun as error:
        raise CommandError(str(error), Exit.USAGE) from None


def answer_of(run: FoundRun, do: str, **arguments: Any) -> Document:
    """Return the answer of a run.

    Raises:
        CommandError: if it does not answer, or answers with an error.
    """
    try:
        return client.ask(run, do, **arguments)
    except client.NoAnswer as error:
        raise CommandError(str(error), Exit.NO_RUN) from None
    except client.Refused as error:
        facts = error.error
        code = _CODES.get(str(facts.get("kind")), Exit.UNFORESEEN)
        raise CommandError(str(error), code, operator=facts.get("operator"), location=facts.get("location")) from None


def write_document(content: Document) -> None:
    """Write a document of a run on one line."""
    click.echo(json.dumps(content))


_COLUMNS = ["job", "run", ">pid", "runtime", "status", "started", ">workers", ">tick", ">records/s", "snapshot"]


@click.command(short_help="List the runs on this machine.")
@click.option("--all", "with_ended", is_flag=True, help="List those too that have ended within an hour.")
@output_options
def ps(with_ended: bool, output: Output) -> None:
    """List the runs of this user on this machine, the oldest first.

    It finds runs of `malflow run`, and those with a Monitor() listener or MALFLOW_CONTROL=1 in their environment. A
    silent run does not answer. An unknown one is in another container, and may have ended.
    """
    runs = client.recent_runs() if with_ended else client.live_runs()
    summaries = [client.summary(run) for run in runs]
    if output.json:
        for summary in summaries:
            write_document(document("run", summary))
    elif summaries:
        has_page = any(it["page"] for it in summaries)
        rows = [[*_row(it), *([_text(it["page"])] if has_page else [])] for it in summaries]
        write_table([*_COLUMNS, *(["page"] if has_page else [])], rows, output)
    else:
        output.say("no run of this user is found on this machine")


def _row(summary: dict[str, Any]) -> list[str]:
    snapshot, rate = summary["snapshot"], summary["polled_per_second"]
    return [
        summary["name"],
        summary["run"],
        _text(summary["pid"]),
        summary["runtime"],
        _text(summary["status"]),
        _ago(summary["started"]),
        _text(summary["parallelism"]),
        "-" if summary["tick"] is None else f"{summary['tick']:,}",
        "-" if rate is None else f"{rate:,.0f}",
        "-" if snapshot is None else f"{snapshot['id']}, {_ago(snapshot['at'])}",
    ]


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _ago(moment: str | None) -> str:
    try:
        return age(None if moment is None else datetime.fromisoformat(moment)).replace(" old", " ago")
    except (ValueError, TypeError):
        return "-"


_TURN = 0.1
"""The seconds between two checks whether the run has ended: short for a person. Half of it looks twice as often through
the files of runs, double ends the command later."""


@click.command(short_help="Stop a run.")
@job_argument()
@click.option("--timeout", type=SPAN, default="60s", show_default=True, help="Maximum time to wait.")
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
