"""The monitor: the listener by which a run is seen and steered from outside, and its environment variable."""

from __future__ import annotations

import os
from collections.abc import Sequence

from malflow.errors import GraphError
from malflow.events import Event, Listener, Run, RunFinished, TickFinished
from malflow.monitor.samples import Redact, SampleSettings
from malflow.monitor.watch import Exports, Front, Watch
from malflow.words import short_repr

__all__ = [
    "Monitor",
    "monitored",
    "monitored_unless_forbidden",
]


class Monitor:
    """A listener that shows a run to other processes of the same user, and lets them steer it.

    ``malflow ps``, ``top``, ``why``, ``stop``, ``rescale`` and ``snapshots take`` find the run by a file in
    ``$XDG_RUNTIME_DIR/malflow`` or, without that, in the temporary folder, and ask it by a socket beside it. Only the
    same user and root can do so, and only a page listens on a network. If there is no place for these files, a
    warning says so, and the run continues without them.

    It reads the progress of the run once a second, on a thread of its own.

    Args:
        page: a `malflow.serve.Page` that shows the run in a browser; if it can't, a warning says so.
        telemetry: a `malflow.monitor.opentelemetry.Telemetry` that sends metrics and spans elsewhere.
        samples: whether the last records of an operator may be shown on request: as texts, a few per second, and only
            for runs on one thread.
        redact: called with each message before it is shown; returns a `malflow.message.DataMessage` with parts hidden,
            and must not change the one that it gets.

    >>> from malflow import SingleThreadRuntime
    >>> from malflow.sinks import VecSink
    >>> from malflow.sources import SingleIteratorSource
    >>> SingleThreadRuntime(
    ...     lambda provider: provider.new_stream().source("s", SingleIteratorSource([1, 2])).sink("out", VecSink()),
    ...     listeners=[Monitor()],
    ... ).execute()
    """

    def __init__(
        self,
        page: Front | None = None,
        telemetry: Exports | None = None,
        *,
        samples: bool = False,
        redact: Redact | None = None,
    ) -> None:
        self.page = page
        self.telemetry = telemetry
        self.samples = SampleSettings(samples, redact)
        self._watch: Watch | None = None

    def on_start(self, run: Run, /) -> None:
        """Begin to watch a run.

        Raises:
            GraphError: if it watches another run that has not ended.
        """
        if self._watch is not None and not self._watch.is_over and not self._watch.run.has_ended:
            raise GraphError("a monitor watches one run at a time; give each run a Monitor() of its own")
        self._watch = Watch(run, self.page, self.telemetry, self.samples)

    def on_event(self, event: Event, /) -> None:
        """Note an event; of a tick, keep only the duration."""
        watch = self._watch
        if watch is None:
            return
        if type(event) is TickFinished:
            watch.note_tick(event)
            return
        watch.note(event)
        if isinstance(event, RunFinished):
            watch.close("ended" if event.error is None else "failed")

    @property
    def watch(self) -> Watch | None:
        """The watch over the current or last run; None before the first."""
        return self._watch


def monitored(own: Sequence[Listener]) -> Sequence[Listener]:
    """Return the listeners of a run, with a monitor if the environment asks for one and they have none.

    Raises:
        GraphError: if ``MALFLOW_CONTROL`` is neither 1 nor 0.
    """
    return _with_monitor(own) if _wish() == "1" else own


def monitored_unless_forbidden(
    own: Sequence[Listener], page: Front | None = None, telemetry: Exports | None = None
) -> Sequence[Listener]:
    """Return the listeners of a run under a command, with a monitor unless they have one or the environment forbids it.

    Args:
        own: the run's own listeners.
        page: a page that shows the run, or None.
        telemetry: sends its metrics elsewhere, or None. With a page or telemetry, there is always a monitor.

    Raises:
        GraphError: if ``MALFLOW_CONTROL`` is neither 1 nor 0.
    """
    if page is None and telemetry is None:
        return own if _wish() == "0" else _with_monitor(own)
    watched = _with_monitor(own)
    watching = next(it for it in watched if isinstance(it, Monitor))
    watching.page = watching.page or page
    watching.telemetry = watching.telemetry or telemetry
    return watched


def _with_monitor(own: Sequence[Listener]) -> Sequence[Listener]:
    return own if any(isinstance(it, Monitor) for it in own) else (*own, Monitor())


def _wish() -> str:
    wish = os.environ.get("MALFLOW_CONTROL", "")
    if wish not in ("", "0", "1"):
        raise GraphError(f"the environment variable MALFLOW_CONTROL must be 1 or 0; got {short_repr(wish)}")
    return wish
