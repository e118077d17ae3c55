"""What a command tells about a run: lines on standard error, or JSON documents."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from malflow.cli.output import Output
from malflow.cli.texts import age, counted
from malflow.events import (
    Event,
    Rescaled,
    Restarted,
    Run,
    RunFinished,
    RunStarted,
    SnapshotCommitted,
    TickFinished,
)

__all__ = ["Limits", "LiveRuns", "Narrator"]

_PLACES = {"single": "on one thread", "processes": "in several processes", "spark": "on Spark"}


class LiveRuns:
    """The runs of this process that have not ended, for a signal that stops them."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def add(self, run: Run) -> None:
        """Add a run that begins."""
        self._runs = [*(it for it in self._runs if not it.has_ended), run]

    @property
    def are_alive(self) -> bool:
        """Whether one of them has not ended."""
        return any(not it.has_ended for it in self._runs)

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
        place: where its state is; None if it keeps none.
        output: how to write.
        runs: the live runs, which it adds the run to.

    Attributes:
        hint: what stands after the run has failed; None if it has not.
        is_apart: whether the run is in a thread of its own, so that its error may reach nobody.
    """

    def __init__(self, title: str, kind: str, place: str | None, output: Output, runs: LiveRuns) -> None:
        self._title = title
        self._kind = kind
        self._place = place
        self._output = output
        self._runs = runs
        self._run: Run | None = None
        self.hint: str | None = None
        self.is_apart = False

    def on_start(self, run: Run, /) -> None:
        """Take the handle of the run."""
        self._run = run
        self._runs.add(run)

    def on_event(self, event: Event, /) -> None:
        """Write the line of an event; most have none."""
        if isinstance(event, RunFinished) and event.error is not None and event.snapshot is not None:
            self.hint = f"snapshot {event.snapshot} stands; mend it and run again"
        if self._output.json:
            self._as_document(event)
            return
        match event:
            case RunStarted(restarts=0):
                self._output.say(self._beginning(event))
            case RunStarted():
                self._output.say(f"{self._title} runs again, from {_snapshot(event.snapshot)}")
            case Restarted(error=error, pause=pause):
                self._output.say(f"{self._title} failed and begins again in {pause:g} s: {error}")
            case Rescaled(previous=previous, parallelism=parallelism) if previous != parallelism:
                self._output.say(f"{self._title} has {counted(parallelism, 'worker')} instead of {previous}")
            case RunFinished(error=None):
                self._output.say(self._end(event))
            case RunFinished(tick=tick, error=error) if self.is_apart:
                self._output.say(f"{self._title} failed after tick {tick}: {error}")
            case _:
                pass

    def _beginning(self, event: RunStarted) -> str:
        where = _PLACES[self._kind]
        state = f"state in {self._place}" if self._place else "no state is kept (--persistence PATH keeps it)"
        if event.snapshot is None:
            workers = f", {counted(event.parallelism, 'worker')}" if event.parallelism != 1 else ""
            return f"running {self._title} {where}{workers}, {state}"
        keys = sum(event.keys.values())
        return (
            f"resumed {self._title} {where} from snapshot {event.snapshot} "
            f"({age(event.time)}, {counted(keys, 'key')}), {state}"
        )

    def _end(self, event: RunFinished) -> str:
        stopped = getattr(self._run, "is_stopping", False)
        word = "stopped" if stopped else "ended"
        if event.snapshot is None:
            return f"{self._title} {word} after tick {event.tick}"
        sizes = {} if self._run is None else self._run.progress.states
        size = ""
        if sizes:
            size = f" ({counted(sum(it.keys for it in sizes.values()), 'key')})"
        again = "; the same command resumes from here" if stopped else ""
        return f"{self._title} {word} after tick {event.tick}, with snapshot {event.snapshot}{size}{again}"

    def _as_document(self, event: Event) -> None:
        base = {"flow": self._title, "at": datetime.now(UTC).isoformat(timespec="milliseconds")}
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


def _snapshot(number: int | None) -> str:
    return "the beginning" if number is None else f"snapshot {number}"
