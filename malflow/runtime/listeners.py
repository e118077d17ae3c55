"""The listeners of a run: the log and the user's own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from malflow.diagnostics import short_repr
from malflow.events import (
    ConfirmationFailed,
    DiscoveryFailed,
    Event,
    Listener,
    PartsDiscovered,
    RescaleRefused,
    Restarted,
    RunFinished,
    SnapshotFailed,
)

__all__ = ["Listeners", "LoggingListener"]

_log = logging.getLogger("malflow.runtime")
_snapshot_log = logging.getLogger("malflow.snapshot")


class LoggingListener:
    """Logs the events that a user should know of.

    Args:
        job: the name of the job.
    """

    def __init__(self, job: str) -> None:
        self._job = job

    def on_event(self, event: Event, /) -> None:
        """Log an event if it is a warning."""
        match event:
            case SnapshotFailed(error=error, retry_after=float(pause)):
                _snapshot_log.warning(
                    "a snapshot of job '%s' failed and will be retried in %.1f s: %s", self._job, pause, error
                )
            case ConfirmationFailed(error=error):
                _log.warning("a position in a durable snapshot was not confirmed outside: %s", error)
            case PartsDiscovered(source=source, parts=parts):
                _log.info("source '%s' has %d new parts: %s", source, len(parts), short_repr(list(parts)))
            case DiscoveryFailed(source=source, error=error):
                _log.warning("the parts of source '%s' could not be listed again: %s", source, error)
            case RescaleRefused(error=error):
                _log.warning("the dataflow was not rescaled: %s", error)
            case Restarted(error=error, pause=pause):
                _log.warning("the run failed and goes on from its last snapshot in %g s: %s", pause, error)
            case RunFinished(error=None, dropped=dropped, lateness=lateness):
                for name, count in dropped.items():
                    _log.warning(
                        "operator '%s' dropped %d records as late%s: nothing reads the second of the streams that "
                        "generate_epochs() returns; send it to a sink to see them",
                        name,
                        count,
                        f", by up to {lateness[name]}" if name in lateness else "",
                    )
            case _:
                pass


class Listeners:
    """The listeners of one run, the log first; events of several threads are delivered one at a time.

    Args:
        listeners: the user's listeners.
        job: the name of the job.
    """

    def __init__(self, listeners: Iterable[Listener] = (), *, job: str = "default") -> None:
        self._listeners: list[Listener] = [LoggingListener(job), *listeners]
        self._lock = threading.RLock()

    def notify(self, event: Event) -> None:
        """Pass an event to each listener; a listener that raises is logged and dropped."""
        with self._lock:
            for listener in tuple(self._listeners):
                try:
                    listener.on_event(event)
                except Exception:  # noqa: BLE001 - whatever it is, the run goes on
                    self._listeners = [it for it in self._listeners if it is not listener]
                    _log.exception("listener %s failed, and hears no more of the run", short_repr(listener))
