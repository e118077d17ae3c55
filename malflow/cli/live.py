"""The runs that commands see and steer: finding one by its name, and asking it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from malflow.cli.exits import CommandError, Exit
from malflow.monitor import client
from malflow.monitor.client import FoundRun
from malflow.monitor.documents import Document

__all__ = ["answer_of", "job_argument", "run_named", "write_document"]

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
