"""The JSON documents about a run, which the command line, the control socket and the page share.

A document is ``{"malflow": 1, "kind": ...}``. Its keys keep their meaning within a major version. Times are ISO 8601 in
UTC, sizes bytes, durations seconds. The values, keys and parts of users are texts, without secrets.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from malflow.engine.parts.reads import PartProgress
from malflow.errors import OperatorError, reason_of
from malflow.events import Event
from malflow.failures import DeadLetter
from malflow.monitor.recent_past import History, Rates
from malflow.operators.waiting import Running
from malflow.runtime.progress.progress import OperatorProgress, Progress, SnapshotFailure, SnapshotInfo, Spread
from malflow.runtime.progress.time_table import TimeRow, TimeTable
from malflow.runtime.why.answer import Why
from malflow.store.redaction import redacted, safe_line, safe_lines, safe_repr
from malflow.words import iso

__all__ = [
    "LONGEST_ANSWER",
    "Document",
    "RunFacts",
    "as_answer",
    "as_json",
    "document",
    "error_document",
    "event_document",
    "history_document",
    "letter_facts",
    "meant_keys",
    "progress_document",
    "refusal",
    "time_document",
    "why_document",
]

Document: TypeAlias = dict[str, Any]
"""A JSON document."""

LONGEST_ANSWER: Final = 8 * 1024 * 1024
"""The longest answer of a run, in bytes."""

_VERSION: Final = 1
"""The version of the documents' form, in their field `malflow`."""

_MOST_PARTS = 256
"""The most parts and values in a list; of parts, those with the longest lag. Half of it hides parts of large topics,
double makes each document of a wide source longer."""

_LONGEST_KEY = 1000
"""The most characters of a text to parse as a Python literal: deep nesting costs memory and time. A longer key is taken
as a text."""

_OF_USERS = frozenset({"parts", "lateness"})
"""The fields of events whose values are users'."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What does not change about a run.

    Attributes:
        run: its id, eight hexadecimal digits.
        job: the name of its job.
        runtime: the kind of its runtime: ``single``, ``processes`` or ``spark``.
        pid: the process that started it.
    """

    run: str
    job: str
    runtime: str
    pid: int


def document(kind: str, content: Mapping[str, Any]) -> Document:
    """Return a document of a kind."""
    return {"malflow": _VERSION, "kind": kind, **content}


def as_json(content: Mapping[str, Any]) -> bytes:
    """Return a document as one line; whatever is not ASCII is escaped, so no name can break out of it."""
    return json.dumps(content, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


def as_answer(content: Document) -> tuple[Document, bytes]:
    """Return a document and its line of JSON. If the line is too long to send, return an error instead."""
    data = as_json(content)
    if len(data) > LONGEST_ANSWER:
        content = refusal("TooLarge", f"the answer has more than {LONGEST_ANSWER:,} bytes")
        data = as_json(content)
    return content, data


def error_document(error: BaseException) -> Document:
    """Return the facts about an error: its kind, message, operator, key and location."""
    location = getattr(error, "callback", None) or getattr(error, "location", None)
    return {
        "kind": type(error).__name__,
        "message": safe_line(reason_of(error)),
        "operator": getattr(error, "operator", None),
        "key": safe_repr(error.key) if isinstance(error, OperatorError) and error.has_record else None,
        "location": None if location is None else str(location),
    }


def refusal(kind: str, message: str) -> Document:
    """Return the document of a request that was not served."""
    facts = {"kind": kind, "message": safe_line(message), "operator": None, "key": None, "location": None}
    return document("error", {"error": facts})


def progress_document(facts: RunFacts, progress: Progress, rates: Rates) -> Document:
    """Return the document of a run's progress.

    Args:
        facts: which run it is.
        progress: its progress.
        rates: what its operators took and gave lately.
    """
    return document(
        "progress",
        {
            "run": facts.run,
            "job": facts.job,
            "runtime": facts.runtime,
            "pid": facts.pid,
            "status": progress.status,
            "tick": progress.tick,
            "parallelism": progress.parallelism,
            "polled": progress.polled,
            "seconds": progress.seconds,
            "restarts": progress.restarts,
            "started": iso(progress.started),
            "at": iso(progress.at),
            "polled_per_second": rates.polled,
            "snapshot": _snapshot(progress.last_snapshot),
            "snapshot_failure": _failure(progress.snapshot_failure),
            "snapshot_interval": progress.snapshot_interval,
            "unfinished": [*progress.unfinished],
            "parts": _parts(progress),
            "workers": [
                {"worker": it.worker, "parts": it.parts, "per_second": it.rate, "busy": it.busy, "lane": it.lane}
                for it in progress.workers
            ],
            "operators": [
                _operator(name, it, progress, rates, 1 if facts.runtime == "single" else progress.parallelism)
                for name, it in progress.operators.items()
            ],
            "sinks": [{"name": name, **asdict(it)} for name, it in progress.sinks.items()],
            "running": None if progress.running is None else _running(progress.running),
            "hot": [
                {
                    "operator": name,
                    "worker": it.worker,
                    "worker_share": it.worker_share,
                    "key": redacted(it.key),
                    "key_share": it.key_share,
                }
                for name, it in progress.hot.items()
            ],
        },
    )


def event_document(number: int, at: datetime, event: Event) -> Document:
    """Return the facts about an event; facts of kinds that later versions add are taken field by field.

    Args:
        number: the number of the event.
        at: when it happened.
        event: the event.
    """
    content = {it.name: _json_value(getattr(event, it.name), of_user=it.name in _OF_USERS) for it in fields(event)}
    return {"number": number, "at": iso(at), "event": _snake(type(event).__name__), **content}


def history_document(facts: RunFacts, history: History, last: int | None = None) -> Document:
    """Return the document of the last minutes: for each sample, the records and the busy seconds so far.

    Args:
        facts: which run it is.
        history: its samples.
        last: the number of latest samples to include; None for all.
    """
    samples = history.samples
    samples = samples if last is None else samples[-last:]
    content = {
        "run": facts.run,
        "job": facts.job,
        "at": [iso(it.at) for it in samples],
        "ticks": [it.tick for it in samples],
        "operators": [
            {
                "name": name,
                "taken": [it.counts[at] for it in samples],
                "given": [[it.counts[at + output] for it in samples] for output in range(1, outputs + 1)],
                "busy": [it.busy[number] for it in samples],
            }
            for number, (name, at, outputs) in enumerate(history.columns)
        ],
    }
    return document("history", content)


def why_document(facts: RunFacts, why: Why) -> Document:
    """Return the document that says why nothing comes out of an operator, or of the run."""
    content = {
        "run": facts.run,
        "job": facts.job,
        "operator": why.operator,
        "cause": why.cause,
        "text": safe_lines(why.text),
        "stops_at": why.stops_at,
        "is_fault": why.is_fault,
        "facts": {name: _json_value(fact) for name, fact in why.facts.items()},
    }
    return document("why", content)


def time_document(facts: RunFacts, table: TimeTable) -> Document:
    """Return the document of the operators that wait for an epoch, each with the source that holds it back."""
    content = {
        "run": facts.run,
        "job": facts.job,
        "at": iso(table.now),
        "text": "\n".join(map(safe_line, str(table).split("\n"))),
        "rows": [_time_row(row, table.now) for row in table.rows],
        "epochs": [
            {"operator": name, "epoch": safe_repr(epoch), "behind": _behind(epoch, table.now)}
            for name, epoch in table.epochs.items()
        ],
        "late": [
            {
                "operator": name,
                "late": late,
                "lateness": safe_repr(table.lateness[name]) if name in table.lateness else None,
            }
            for name, late in table.late.items()
        ],
    }
    return document("time", content)


def letter_facts(letter: DeadLetter) -> Document:
    """Return the facts about a dead letter, with users' values as texts."""
    return {
        "operator": letter.operator,
        "id": letter.id,
        "key": safe_repr(letter.key),
        "value": safe_repr(letter.value),
        "timestamp": safe_repr(letter.timestamp),
        "error": letter.error,
        "message": safe_line(letter.message),
        "place": letter.place,
        "attempts": letter.attempts,
        "is_parked": letter.is_parked,
        "tick": letter.tick,
        "worker": letter.worker,
        "at": iso(letter.at),
    }


def meant_keys(text: str) -> list[Any]:
    """Return the keys that a text may mean: the value of a Python literal, and the text itself.

    >>> meant_keys("7"), meant_keys("the")
    ([7, '7'], ['the'])
    """
    if len(text) > _LONGEST_KEY:
        return [text]
    try:
        literal = ast.literal_eval(text)
        hash(literal)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return [text]
    return [literal, text]


def _behind(epoch: object, now: datetime | None) -> float | None:
    """Return how many seconds an epoch is behind the clock; None if it is not a datetime."""
    if now is None or not isinstance(epoch, datetime):
        return None
    return (now - (epoch if epoch.tzinfo is not None else epoch.replace(tzinfo=UTC))).total_seconds()


def _time_row(row: TimeRow, now: datetime | None) -> Document:
    return {
        "operator": row.operator,
        "worker": row.worker,
        "open": row.open,
        "what": row.what,
        "frontier": _optional(row.frontier),
        "behind": _behind(row.frontier, now),
        "until": _optional(row.until),
        "generator": row.generator,
        "source": row.source,
        "part": _optional(row.part),
        "epoch": _optional(row.epoch),
        "silence": None if row.silence is None else row.silence.total_seconds(),
        "advances": row.advances,
    }


def _operator(name: str, it: OperatorProgress, progress: Progress, rates: Rates, at_once: int) -> Document:
    """Return the facts about an operator; at most `at_once` of its workers work at the same time."""
    taken, given = rates.of(name)
    busy = rates.busy.get(name)
    size = progress.states.get(name)
    return {
        "name": name,
        "is": it.kind,
        "taken": it.taken,
        "given": [*it.given],
        "taken_per_second": taken,
        "given_per_second": given,
        "lag": progress.lag.get(name),
        "share": [*progress.shares[name]] if name in progress.shares else None,
        "keys": it.keys,
        "largest_state": None if size is None else size.largest_bytes,
        "late": progress.late.get(name),
        "lateness": safe_repr(progress.lateness[name]) if name in progress.lateness else None,
        "counts": dict(progress.counts.get(name, {})),
        "failed": it.failed,
        "skipped": it.skipped,
        "letters": it.letters,
        "retries": it.retries,
        "errors": dict(it.errors),
        "example": None if it.example is None else safe_line(it.example),
        "busy": it.busy,
        "busy_share": None if busy is None else min(1.0, busy / at_once),
        "batches": it.batches,
        "largest": it.largest,
        "calls": it.calls,
        "polls": it.polls,
        "saturated_polls": it.saturated_polls,
        "rows_made": it.rows_made,
        "demotions": it.demotions,
        "workers": {"taken": _spread(it.workers_taken), "busy": _spread(it.workers_busy)},
    }


def _running(it: Running) -> Document:
    return {"operator": it.operator, "waits": None if it.waits is None else safe_line(it.waits)}


def _spread(spread: Spread) -> Document:
    return {"greatest": spread.greatest, "mean": spread.mean, "by_worker": [*spread.by_worker]}


def _snapshot(info: SnapshotInfo | None) -> Document | None:
    if info is None:
        return None
    facts = {it.name: getattr(info, it.name) for it in fields(info)}
    return {**facts, "at": iso(info.at)}


def _failure(failure: SnapshotFailure | None) -> Document | None:
    if failure is None:
        return None
    return {"tick": failure.tick, "error": safe_line(failure.error), "at": iso(failure.at)}


def _parts(progress: Progress) -> list[Document]:
    """Return the facts about parts: those with the greatest lag first, the fastest of equal ones; unknown lags last."""
    lags = progress.lag_by_part
    rows = [
        (name, part, lags.get(name, {}).get(part), progress.parts.get(name, {}).get(part))
        for name in {**progress.parts, **lags}
        for part in {**progress.parts.get(name, {}), **lags.get(name, {})}
    ]
    rows.sort(
        key=lambda row: (-1 if row[2] is None else row[2], 0.0 if row[3] is None else row[3].rate or 0.0), reverse=True
    )
    return [
        {"source": name, "part": safe_repr(part), "lag": lag, **_read(it)} for name, part, lag, it in rows[:_MOST_PARTS]
    ]


def _read(part: PartProgress | None) -> Document:
    if part is None:
        return {"worker": None, "records": None, "per_second": None, "is_finished": False}
    facts = {"worker": part.worker, "records": part.records, "per_second": part.rate}
    return {**facts, "is_finished": part.is_finished}


def _json_value(value: Any, *, of_user: bool = False) -> Any:
    """Return a value as JSON values."""
    if isinstance(value, BaseException):
        return error_document(value)
    if isinstance(value, Mapping):
        return {_name(key): _json_value(inner, of_user=of_user) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_json_value(it, of_user=of_user) for it in _first(value)]
    if of_user:
        return safe_repr(value)
    if isinstance(value, str):
        return safe_line(value)
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, datetime):
        return iso(value)
    return value.total_seconds() if isinstance(value, timedelta) else safe_repr(value)


def _first(values: Sequence[Any]) -> Iterable[Any]:
    return values[:_MOST_PARTS]


def _name(key: object) -> str:
    return key if isinstance(key, str) else safe_repr(key)


def _optional(value: object) -> str | None:
    return None if value is None else safe_repr(value)


def _snake(name: str) -> str:
    """Return the name of an event as a word.

    >>> _snake("SnapshotCommitted")
    'snapshot_committed'
    """
    return "".join(f"_{it.lower()}" if it.isupper() else it for it in name).lstrip("_")
