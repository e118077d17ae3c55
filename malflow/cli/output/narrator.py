"""What a command tells about a run: lines on standard error, or JSON documents."""

from __future__ import annotations

import re
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from malflow.cli.output.output import Output
from malflow.cli.output.texts import age, duration
from malflow.errors import FencedError, OperatorError, SnapshotIncomplete
from malflow.events import (
    Event,
    PartsMoved,
    Rescaled,
    Restarted,
    Run,
    RunFinished,
    RunStarted,
    SnapshotCommitted,
    TickFinished,
)
from malflow.store.redaction import safe_repr
from malflow.words import iso, plural

__all__ = ["Limits", "LiveRuns", "Narrator"]

_PLAIN = re.compile("[A-Za-z0-9_-]+")
"""Names that need no quotes in a setting."""

_PLACES = {"single": "on one thread", "processes": "in several processes", "spark": "on Spark"}


class LiveRuns:
    """The runs of this process that have not ended, for a signal that stops them."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def add(self, run: Run) -> None:
        """Add a run that begins."""
        self._runs = [*(it for it in self._runs if not it.has_ended), run]

    @property
    def alive(self) -> list[Run]:
        """The runs that have not ended."""
        return [it for it in self._runs if not it.has_ended]

    @property
    def are_alive(self) -> bool:
        """Whether one of them has not ended."""
        return bool(self.alive)

    def stop(self) -> bool:
        """Stop those that have not been asked to; return whether there were any."""
        asked = [it for it in self._runs if not it.has_ended and not getattr(it, "is_stopping", False)]
        for run in asked:
            run.stop()
        return bool(asked)


class Limits:
    """Stops a run after a number of records or seconds.

    Args:
        records: the number of records that its sources give; None for no limit.
        seconds: how long it runs at most; None for no limit.
    """

    def __init__(self, records: int | None, seconds: float | None) -> None:
        self._records = records
        self._seconds = seconds
        self._given = 0
        self._run: Run | None = None
        self._timer: threading.Timer | None = None

    def on_start(self, run: Run, /) -> None:
        """Begin to count."""
        self._run, self._given = run, 0
        if self._seconds is not None:
            self._timer = threading.Timer(self._seconds, run.stop)
            self._timer.daemon = True
            self._timer.start()

    def on_event(self, event: Event, /) -> None:
        """Count the records of a tick."""
        if isinstance(event, TickFinished):
            self._given += event.polled
            if self._records is not None and self._run is not None and self._given >= self._records:
                self._run.stop()
        elif isinstance(event, RunFinished) and self._timer is not None:
            self._timer.cancel()


class Narrator:
    """A listener that tells what begins, resumes, is stopped and ends.

    Args:
        title: the name of the flow.
        kind: the kind of its runtime.
        place: where its state is kept, without the job; None if it keeps no state.
        output: how to write.
        runs: the live runs; it adds the run to them.

    Attributes:
        hint: what stands after the run has failed; None if it has not.
        is_apart: whether the run is in a thread of its own; its error may then reach nobody.
        is_live: whether a live view is drawn below its lines.
    """

    def __init__(self, title: str, kind: str, place: str | None, output: Output, runs: LiveRuns) -> None:
        self._title = title
        self._kind = kind
        self._place = place
        self._output = output
        self._runs = runs
        self._run: Run | None = None
        self.hint: str | None = None
        self.is_apart = self.is_live = False

    def on_start(self, run: Run, /) -> None:
        """Take the handle of the run."""
        self._run = run
        self._runs.add(run)

    def on_event(self, event: Event, /) -> None:
        """Write the line of an event; most have none."""
        if isinstance(event, RunFinished) and event.error is not None and event.snapshot is not None:
            self.hint = self._advice(event.error, event.snapshot)
        if self._output.json:
            self._as_document(event)
            return
        match event:
            case RunStarted(restarts=0):
                self._output.say(self._beginning(event))
            case RunStarted():
                self._output.say(f"{self._name} runs again, from {_snapshot(event.snapshot)}")
            case Restarted(error=error, pause=pause):
                self._output.say(f"{self._name} failed and begins again in {pause:g} s: {error}")
            case Rescaled(previous=previous, parallelism=parallelism) if previous != parallelism:
                self._output.say(f"{self._name} has {plural(parallelism, 'worker')} instead of {previous}")
            case PartsMoved(source=source, parts=parts, before=before, after=after):
                self._output.say(f"{source}: {', '.join(map(safe_repr, parts))} went from worker {before} to {after}")
            case RunFinished(error=None):
                self._output.say(self._end(event))
            case RunFinished(tick=tick, error=error) if self.is_apart:
                self._output.say(f"{self._name} failed after tick {tick}: {error}")
            case _:
                pass

    @property
    def _name(self) -> str:
        """The name of the run in messages: its job, or the flow."""
        job = "default" if self._run is None else self._run.job
        return Path(self._title).stem if job == "default" else job

    def _beginning(self, event: RunStarted) -> str:
        if event.snapshot is not None:
            facts = [age(event.time), *_keys(sum(event.keys.values()))]
            return f"resumed {self._name} from snapshot {event.snapshot} ({', '.join(facts)})"
        workers = f", {plural(event.parallelism, 'worker')}" if event.parallelism != 1 else ""
        if self._place is None:
            state = "no state is kept (--persistence PATH keeps it)"
        else:
            is_folder = "://" not in self._place and not self._place.endswith(("/", ")"))
            state = f"state in {self._place}{'/' if is_folder else ''}"
            more = "" if self.is_live else "; --live shows more"
            state += f" (Ctrl-C stops it and keeps that{more})" if sys.stderr.isatty() else ""
        return f"running {self._name} {_PLACES[self._kind]}{workers}, {state}"

    def _end(self, event: RunFinished) -> str:
        stopped = getattr(self._run, "is_stopping", False)
        end = f"{self._name} {'stopped' if stopped else 'ended'} after tick {event.tick}"
        if event.snapshot is None or self._run is None:
            return end
        again = ". The same command continues from here." if stopped else ""
        return f"{end}: snapshot {event.snapshot} {self._written(event.snapshot, self._run.progress)}{again}"

    def _written(self, snapshot: int, progress: Any) -> str:
        """Return whether the last snapshot was written at the end, with its keys and its duration."""
        last = progress.last_snapshot
        sources = {name for name, it in progress.operators.items() if it.kind == "source"}
        keys = _keys(sum(it.keys for name, it in progress.states.items() if name not in sources))
        if last is None or last.id != snapshot or last.capture_seconds is None:
            return f"stands{f' ({keys[0]})' if keys else ''}"
        return f"written ({', '.join([*keys, duration(last.capture_seconds + last.write_seconds)])})"

    def _advice(self, error: BaseException, snapshot: int) -> str:
        """Return the advice after a failure, with the snapshot that stands."""
        if isinstance(error, FencedError):
            return f"the other run continues from snapshot {snapshot} or a later one; don't start this one again"
        if isinstance(error, SnapshotIncomplete):
            return "malflow snapshots verify says what is left"
        return f"snapshot {snapshot} stands; mend it and run again{self._remedy(error)}"

    def _remedy(self, error: BaseException) -> str:
        """Return the setting that lets the run survive a failing record; empty if no policy could help."""
        program = None if self._run is None else self._run.program
        if not isinstance(error, OperatorError) or not error.has_record or program is None:
            return ""
        nodes = [it.node for it in program.vertices if it.node.name == error.operator]
        if not any(getattr(it, "on_error", None) is not None for it in nodes) or not _PLAIN.fullmatch(error.operator):
            return ""
        return f", or --set operators.{error.operator}.on_error=dead_letter"

    def _as_document(self, event: Event) -> None:
        base = {"flow": self._title, "at": iso(datetime.now(UTC))}
        match event:
            case RunStarted():
                facts: dict[str, Any] = {
                    "runtime": self._kind,
                    "parallelism": event.parallelism,
                    "persistence": self._place,
                    "snapshot": event.snapshot,
                    "keys": dict(event.keys),
                    "restarts": event.restarts,
                }
                self._output.document("run_started", {**base, **facts}, err=True)
            case SnapshotCommitted():
                facts = {"snapshot": event.snapshot, "tick": event.tick}
                self._output.document("snapshot_committed", {**base, **facts}, err=True)
            case RunFinished():
                facts = {
                    "tick": event.tick,
                    "parallelism": event.parallelism,
                    "records": dict(event.records),
                    "late": dict(event.late),
                    "snapshot": event.snapshot,
                    "restarts": event.restarts,
                    "stopped": bool(getattr(self._run, "is_stopping", False)),
                    "failed": event.error is not None,
                }
                self._output.document("run_finished", {**base, **facts}, err=True)
            case _:
                pass


def _keys(count: int) -> list[str]:
    """Return the number of keys, for a list of facts; an empty list if there are none."""
    return [plural(count, "key")] if count else []


def _snapshot(number: int | None) -> str:
    return "the beginning" if number is None else f"snapshot {number}"
