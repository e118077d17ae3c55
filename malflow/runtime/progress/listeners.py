"""The listeners of a run: the log and those of the user."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from malflow.events import (
    ConfirmationFailed,
    DiscoveryFailed,
    Event,
    InputEnded,
    Listener,
    PartsDiscovered,
    PartsKept,
    PartsMoved,
    Rescaled,
    RescaleRefused,
    Restarted,
    Run,
    RunFinished,
    RunStarted,
    SnapshotCommitted,
    SnapshotFailed,
    TickFinished,
)
from malflow.operators.waiting import Waiting
from malflow.words import plural, short_repr

__all__ = ["Listeners", "LoggingListener"]

_log = logging.getLogger("malflow.runtime")
_snapshot_log = logging.getLogger("malflow.snapshot")

_Line = tuple[int, logging.Logger, str]
"""A level, a logger and a text."""


class LoggingListener:
    """Logs the events of a run, identically on every runtime; each line has ``record.event`` and ``record.job``.

    Args:
        job: the name of the job.
    """

    def __init__(self, job: str) -> None:
        self._job = job

    def on_event(self, event: Event, /) -> None:
        """Log an event."""
        for level, logger, text in self._lines(event):
            logger.log(level, "%s", text, extra={"event": event, "job": self._job})

    def _lines(self, event: Event) -> Iterator[_Line]:
        """Yield the lines of an event; most ticks have no lines."""
        match event:
            case TickFinished():
                pass
            case SnapshotCommitted(snapshot=snapshot, tick=tick):
                yield logging.INFO, _snapshot_log, f"job '{self._job}' has snapshot {snapshot}, of tick {tick}"
            case SnapshotFailed(error=error, retry_after=float(pause)):
                text = f"a snapshot of job '{self._job}' failed and will be retried in {pause:.1f} s: {error}"
                yield logging.WARNING, _snapshot_log, text
            case RunStarted():
                yield from self._started(event)
            case InputEnded():
                yield from _input_ended(event)
            case RunFinished():
                yield from self._finished(event)
            case _:
                yield from _changed(event)

    def _started(self, event: RunStarted) -> Iterator[_Line]:
        workers = Waiting("workers", event.parallelism)
        if event.snapshot is None:
            yield logging.INFO, _log, f"job '{self._job}' starts without state, with {workers}"
            return
        taken = "" if event.time is None else f" of {event.time:%Y-%m-%d %H:%M:%S} UTC"
        snapshot = f"snapshot {event.snapshot}{taken}"
        keys = "".join(f", {Waiting('keys', count)} of operator '{name}'" for name, count in event.keys.items())
        yield logging.INFO, _log, f"job '{self._job}' resumes from {snapshot}, tick {event.tick}, with {workers}{keys}"
        for name in event.begins_anew:
            text = (
                f"source '{name}' has no positions and starts over, but the run resumes from {snapshot}, which already "
                "has its records: they count twice. Pass restore=None to start without that state, or use a source "
                "with positions, such as a file source or a StatefulSource"
            )
            yield logging.WARNING, _log, text

        for operator, table, rows in event.unseen:
            text = (
                f"operator '{operator}' is new, and starts without the {Waiting('rows', rows)} that table '{table}' "
                f"has in {snapshot}: it sees their next changes only. read_state(backend, '{table}') returns them; for "
                "all of them, read the source again, with restore=None or as a job of another name"
            )
            yield logging.WARNING, _log, text

    def _finished(self, event: RunFinished) -> Iterator[_Line]:
        snapshot = "without a snapshot" if event.snapshot is None else f"with snapshot {event.snapshot}"
        if event.error is not None:
            yield logging.INFO, _log, f"job '{self._job}' has failed after tick {event.tick}, {snapshot}: {event.error}"
            return
        yield logging.INFO, _log, f"job '{self._job}' has ended after tick {event.tick}, {snapshot}"
        for name, count in event.dropped.items():
            most = f", by up to {event.lateness[name]}" if name in event.lateness else ""
            text = (
                f"operator '{name}' dropped {plural(count, 'record')} as late{most}: nothing reads its stream of late "
                "records; to see them, send .late of its result to a sink"
            )
            yield logging.WARNING, _log, text


def _input_ended(event: InputEnded) -> Iterator[_Line]:
    does = "finishes" if event.at_end == "finish" else "is suspended"
    yield logging.INFO, _log, f"the input has ended after tick {event.tick}; the run {does}"
    if event.held and not event.is_chosen:
        held = ", ".join(f"{kept} of operator '{name}'" for name, kept in event.held.items())
        text = (
            f"the input has ended, and the run keeps open results for the next one: {held}. To emit them now, pass "
            "at_end='finish': windows close, timers fire, patterns and joins emit, and a later run emits again, more "
            "completely. Pass at_end='keep' to silence this warning"
        )
        yield logging.WARNING, _log, text


def _changed(event: Event) -> Iterator[_Line]:
    match event:
        case ConfirmationFailed(error=error):
            yield logging.WARNING, _log, f"a reader could not confirm a position in a durable snapshot: {error}"
        case PartsDiscovered(source=source, parts=parts):
            yield (
                logging.INFO,
                _log,
                f"source '{source}' has {plural(len(parts), 'new part')}: {short_repr(list(parts))}",
            )
        case DiscoveryFailed(source=source, error=error):
            yield logging.WARNING, _log, f"the parts of source '{source}' could not be listed: {error}"
        case PartsMoved(source=source, parts=parts, before=before, after=after, reason=reason):
            text = f"{_parts_of(source, parts)} moved from worker {before} to worker {after}: {reason}"
            yield logging.INFO, _log, text
        case PartsKept(source=source, parts=parts, worker=worker, bytes=size, limit=limit):
            text = (
                f"{_parts_of(source, parts)} should move from worker {worker} to an idle one, and stays: "
                f"{size / 1e6:,.0f} MB of state would move, more than {limit / 1e6:,.0f} MB"
            )
            yield logging.WARNING, _log, text
        case Rescaled(previous=previous, parallelism=parallelism):
            yield logging.INFO, _log, f"rescaled from {Waiting('workers', previous)} to {parallelism}"
        case RescaleRefused(error=error):
            yield logging.WARNING, _log, f"the dataflow was not rescaled: {error}"
        case Restarted(error=error, pause=pause):
            text = f"the run failed and continues from its last snapshot in {pause:g} s: {error}"
            yield logging.WARNING, _log, text
        case _:
            pass


def _parts_of(source: str, parts: Sequence[Any]) -> str:
    return f"part {', '.join(map(short_repr, parts))} of source '{source}'"


class Listeners:
    """The listeners of one run, the log first; events from several threads are delivered one at a time.

    Args:
        listeners: the user's listeners.
        job: the name of the job.
        place: where its state is kept, without secrets; None if it keeps none.

    Attributes:
        job: the name of the job.
        place: where its state is kept.
        has_handle: whether a listener has received the handle of the run.
    """

    def __init__(self, listeners: Iterable[Listener] = (), *, job: str = "default", place: str | None = None) -> None:
        self._listeners: list[Listener] = [LoggingListener(job), *listeners]
        self._lock = threading.RLock()
        self.job = job
        self.place = place
        self.has_handle = False

    def start(self, run: Run) -> None:
        """Pass the handle of the run to each listener that takes it."""
        self.has_handle = any(hasattr(it, "on_start") for it in self._listeners)
        self._pass_to_each(lambda it: it.on_start(run) if hasattr(it, "on_start") else None)

    def notify(self, event: Event) -> None:
        """Pass an event to each listener."""
        self._pass_to_each(lambda it: it.on_event(event))

    def _pass_to_each(self, call: Callable[[Listener], object]) -> None:
        """Call something for each listener; one that raises is logged and dropped."""
        with self._lock:
            for listener in tuple(self._listeners):
                try:
                    call(listener)
                except Exception:  # noqa: BLE001 - the run continues after any error of a listener
                    self._listeners = [it for it in self._listeners if it is not listener]
                    _log.exception("listener %s failed, and receives no more events", short_repr(listener))
