"""``malflow errors``: list the dead letters of a job, from its last snapshot or its run, and replay them in the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from malflow.cli.commands.runs import answer_of, job_argument, run_named, write_document
from malflow.cli.commands.state import reading_backend, store_options
from malflow.cli.groups import OrderedGroup
from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.options import NUMBER, SNAPSHOT, SPAN, output_options
from malflow.cli.output.output import Output, document_line
from malflow.cli.output.texts import write_table
from malflow.cli.running.script import exists
from malflow.cli.running.tapping import outcome_lines
from malflow.failures import Replayed
from malflow.monitor import client
from malflow.monitor.asks import MOST_LISTED
from malflow.monitor.client import FoundRun
from malflow.monitor.documents import letter_facts
from malflow.operators.failures.dead_letters import age_of
from malflow.snapshot.persistence import Wish
from malflow.snapshot.reading import dead_letters
from malflow.snapshot.releasing import PendingTransaction, drop, pending_transactions, release
from malflow.store.redaction import safe_lines
from malflow.words import short_repr

__all__ = ["errors"]

_F = TypeVar("_F", bound=Callable[..., Any])
_USUAL = 100
"""The usual number of letters in a list: a few screens. Fewer need `--limit` more often, more take longer to answer."""

_at = click.option("--at", type=SNAPSHOT, default="latest", show_default=True, help="The snapshot to read.")
_trust = click.option(
    "--trust", is_flag=True, help="Unpickle states that are not signed from a store that others may write to."
)


def _steering(command: _F) -> _F:
    """Add the arguments of a request to a run."""
    for decorate in (
        output_options,
        click.option("--timeout", type=SPAN, default="60s", show_default=True, help="Maximum time to wait."),
        click.option("--id", "ids", multiple=True, metavar="ID", help="A letter; may be repeated. By default all."),
        click.argument("operator"),
        job_argument(),
    ):
        command = decorate(command)
    return command


@click.group(cls=OrderedGroup, short_help="List, replay and remove dead letters.")
def errors() -> None:
    """List the records that failed and were kept as dead letters, and let a run process them again.

    PATH-OR-URL is the persistence of the job, such as .malflow or s3://bucket/state; JOB is a run on this
    machine: a job's name, a pid, or the beginning of a run's id. If there is no such folder, ls and show ask the run.
    """


@errors.command("ls", short_help="List the dead letters of a job.")
@store_options
@_at
@_trust
@click.option("--operator", help="Only dead letters of this operator.")
@click.option("--match", metavar="TEXT", help="Only those with this text in their error or record.")
@click.option("--limit", type=NUMBER, default=_USUAL, show_default=True, help="The most letters to list.")
@output_options
def list_letters(
    url: str,
    job: str | None,
    at: Wish,
    trust: bool,
    operator: str | None,
    match: str | None,
    limit: int,
    output: Output,
) -> None:
    """List the dead letters of a job, operator by operator, oldest first: from a snapshot, or from its run now."""
    letters, more = _letters(
        url, job, at, trust=trust, operator=operator, limit=limit if match is None else MOST_LISTED
    )
    matching = [it for it in letters if match is None or match in f"{it['error']}: {it['message']} {it['value']}"]
    matching.sort(key=lambda it: (it["operator"], age_of(it["id"])))
    found, more = matching[:limit], more + max(0, len(matching) - limit)
    if output.json:
        for letter in found:
            click.echo(document_line("letter", **letter))
    elif found:
        heading = ["operator", "id", "key", "value", "error", ">attempts"]
        write_table(heading, [_row(it) for it in found], output)
    else:
        output.say("no dead letters")
    if more > 0:
        output.say(f"{more} more; --limit shows them")


@errors.command("show", short_help="Show a dead letter with its traceback.")
@store_options
@click.argument("letter", metavar="ID")
@_at
@_trust
@output_options
def show(url: str, job: str | None, letter: str, at: Wish, trust: bool, output: Output) -> None:
    """Show the dead letter with an id, with the lines of your code where it failed."""
    found, trace = _letter(url, job, at, letter, trust=trust)
    if output.json:
        click.echo(document_line("letter_details", **found, trace=trace))
        return
    output.write(safe_lines(f"letter {found['id']} of operator '{found['operator']}', attempt {found['attempts']}"))
    output.write(safe_lines(f"key {found['key']}, value {found['value']}, timestamp {found['timestamp']}"))
    output.write(safe_lines(f"tick {found['tick']}, {datetime.fromisoformat(found['at']):%Y-%m-%d %H:%M:%S} UTC"))
    for line in (trace or f"{found['error']}: {found['message']}").splitlines():
        output.write(safe_lines(line))


@errors.command("replay", short_help="Process dead letters again, in a run.")
@_steering
def replay(job: str, operator: str, ids: tuple[str, ...], timeout: timedelta, output: Output) -> None:
    """Ask a run to process dead letters of an operator again, oldest first, before its next input.

    A letter leaves with the effect of its record, in one snapshot. If it fails again, it is a letter with one more
    attempt.
    """
    _steer("replay", "replayed", job, operator, ids, timeout, output)


@errors.command("rm", short_help="Remove dead letters of a run.")
@_steering
def remove(job: str, operator: str, ids: tuple[str, ...], timeout: timedelta, output: Output) -> None:
    """Remove dead letters of an operator from a run, without another attempt."""
    _steer("discard", "removed", job, operator, ids, timeout, output)


@errors.command("pending", short_help="List what a sink has yet to commit.")
@store_options
@_trust
@output_options
def list_pending(url: str, job: str | None, trust: bool, output: Output) -> None:
    """List the transactions of exactly-once sinks that the next start commits.

    If a target refuses a record for good, each start fails until `malflow errors release`, or a run with another
    on_error= for the sink.
    """
    found = [*pending_transactions(reading_backend(url, job, "latest", trust=trust))]
    if output.json:
        for it in found:
            content = short_repr(it.handle)
            click.echo(
                document_line(
                    "pending",
                    sink=it.sink,
                    number=it.number,
                    released=it.is_released,
                    dropped=it.is_dropped,
                    content=content,
                )
            )
    elif found:
        rows = [[safe_lines(it.sink), str(it.number), _fate_of(it), safe_lines(short_repr(it.handle))] for it in found]
        write_table(["sink", ">transaction", "released", "content"], rows, output)
    else:
        output.say("no pending transactions")


@errors.command("release", short_help="Let the next start continue without what a target refuses.")
@store_options
@click.argument("sink")
@click.option(
    "--drop",
    "number",
    type=NUMBER,
    help="Drop this transaction and the later ones as a whole, for sinks that can't divide them.",
)
@_trust
@output_options
def release_pending(url: str, job: str | None, sink: str, number: int | None, trust: bool, output: Output) -> None:
    """Release the records of a sink's pending transactions that its target refuses.

    At the next start they become dead letters, whatever the sink's policy, and the rest is written. With --drop, each
    whole transaction becomes one dead letter and can't be replayed; records that the target already has stay there.
    Stop the job first: a live run is fenced, and ends.
    """
    backend = reading_backend(url, job, "latest", trust=trust)
    numbers = release(backend, sink) if number is None else drop(backend, sink, number)
    if output.json:
        kind = "released" if number is None else "dropped"
        click.echo(document_line(kind, sink=sink, transactions=numbers))
        return
    shown = ", ".join(map(str, numbers))
    if number is not None:
        output.write(
            f"sink '{safe_lines(sink)}': transaction {shown} dropped; the next start keeps each as one dead letter, "
            "and continues without it"
        )
        return
    output.write(
        f"sink '{safe_lines(sink)}': transaction {shown} released; the next start writes what its target accepts, and "
        "keeps the rest as dead letters"
    )


def _fate_of(transaction: PendingTransaction) -> str:
    return "dropped" if transaction.is_dropped else "yes" if transaction.is_released else "no"


def _steer(
    do: str, done: str, job: str, operator: str, ids: tuple[str, ...], timeout: timedelta, output: Output
) -> None:
    run = run_named(job)
    answer = answer_of(run, do, operator=operator, ids=list(ids) or None, timeout=timeout.total_seconds())
    if output.json:
        write_document(answer)
    elif answer["kind"] == "accepted":
        output.write(f"{run} does so after its current tick, which takes long")
    else:
        found = Replayed(answer["done"], answer["late"], answer["texts"], answer["parked"])
        first, *others = outcome_lines(operator, done, found)
        output.write(first)
        for line in others:
            output.say(line)


def _letters(
    url: str, job: str | None, at: Wish, *, trust: bool, operator: str | None, limit: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the facts about all letters in a snapshot, or some in a run, and the number of further ones."""
    run = _run_at(url, at)
    if run is None:
        kept = dead_letters(reading_backend(url, job, at, trust=trust), operator, at=at)
        return [letter_facts(it) for it in kept], 0
    answer = answer_of(run, "letters", operator=operator, limit=min(limit, MOST_LISTED))
    found: list[dict[str, Any]] = answer["letters"]
    return found, max(0, answer["total"] - len(found))


def _letter(url: str, job: str | None, at: Wish, wanted: str, *, trust: bool) -> tuple[dict[str, Any], str]:
    """Return the facts about a letter, and its traceback.

    Raises:
        CommandError: if there is no such letter.
    """
    run = _run_at(url, at)
    if run is None:
        for it in dead_letters(reading_backend(url, job, at, trust=trust), at=at):
            if it.id == wanted:
                return letter_facts(it), it.trace
    else:
        for facts in answer_of(run, "letters", id=wanted)["letters"]:
            return {name: fact for name, fact in facts.items() if name != "trace"}, facts["trace"]
    raise CommandError(f"there is no dead letter '{wanted}'; malflow errors ls lists them", Exit.SNAPSHOT)


def _run_at(text: str, at: Wish) -> FoundRun | None:
    """Return the run that a text names; None if it is a path or URL.

    Raises:
        CommandError: if it is neither, if it names several runs, or if it names a run and `at` a snapshot.
    """
    if "://" in text or "/" in text or text.startswith(".") or exists(text):
        return None
    try:
        run = client.find(text)
    except client.NoSuchRun as error:
        raise CommandError(f"there is no folder '{text}', and {error}", Exit.SNAPSHOT) from None
    except client.AmbiguousRun as error:
        raise CommandError(str(error), Exit.USAGE) from None
    if at != "latest":
        raise CommandError(f"--at reads a snapshot, and '{text}' is a run; name its persistence", Exit.USAGE)
    return run


def _row(letter: Mapping[str, Any]) -> list[str]:
    error = f"{letter['error']}: {letter['message']}".splitlines()[0]
    if letter["is_parked"] and letter["attempts"]:
        error = f"parks its key; {error}"
    texts = letter["operator"], letter["id"], letter["key"], letter["value"], error, str(letter["attempts"])
    return [*map(safe_lines, texts)]
