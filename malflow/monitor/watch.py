"""The watch over one run: samples of its progress, its events, and the file and socket by which others find it."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from malflow.errors import MalflowError
from malflow.events import Event, Run, TickFinished
from malflow.monitor.answers import Answers, Events, read_progress
from malflow.monitor.control_socket import ControlSocket
from malflow.monitor.documents import RunFacts
from malflow.monitor.meters import Meters, Times
from malflow.monitor.metrics import Reading
from malflow.monitor.recent_past import History
from malflow.monitor.run_files import NoPlace, RunFile, clear_away, new_id, place, remove, socket_of, write
from malflow.monitor.samples import Samples, SampleSettings
from malflow.runtime.owners import Owner
from malflow.runtime.progress.progress import Progress
from malflow.words import iso

__all__ = ["Export", "Exports", "Front", "Watch"]

_log = logging.getLogger("malflow.monitor")

_NOTHING_SHOWN = SampleSettings()
_SECONDS = 1.0
"""The time between two samples."""
_LAST_SECONDS = 3.0
"""The longest time in which the last answers are sent."""


class Front(Protocol):
    """A page that shows runs, one at a time."""

    @property
    def address(self) -> str | None:
        """Its URL, without a secret; None if it does not listen."""

    def show(self, watch: Watch, /) -> None:
        """Show a run, until another one is shown.

        Raises:
            OSError: if it can't listen.
        """


class Export(Protocol):
    """Sends the metrics and spans of one run to another system."""

    def note(self, event: Event, /) -> None:
        """Note an event."""

    def turn(self) -> None:
        """Do periodic work; called once a second."""

    def close(self) -> None:
        """Send the rest, but give up after a moment."""


class Exports(Protocol):
    """Sends the metrics and spans of runs to another system."""

    def begin(self, watch: Watch, /) -> Export:
        """Begin to send the metrics and spans of a run."""


class Watch:
    """The watch over one run, from its beginning to its end.

    Args:
        run: the run.
        page: the page that shows it, or None.
        telemetry: sends its metrics elsewhere; None for nowhere.
        samples: whether records may be shown, and how.

    Attributes:
        run: the run.
        id: the id of the run, by which others name it.
        is_over: whether the run has ended.
        answers: answers the requests of others.
        facts: which run it is.
        history: the samples of its progress.
        meters: the measurements of its events and progress.
        begun_ns: when the watch began, in nanoseconds since 1970.
    """

    def __init__(
        self,
        run: Run,
        page: Front | None = None,
        telemetry: Exports | None = None,
        samples: SampleSettings = _NOTHING_SHOWN,
    ) -> None:
        self.run = run
        self.id = new_id()
        self.is_over = False
        self.begun_ns = time.time_ns()
        self._pid = os.getpid()
        self.history, self._events, self.meters = History(), Events(), Meters()
        self._times = Times(run.explain_time)
        self.facts = RunFacts(self.id, run.job, run.runtime, self._pid)
        self.answers = Answers(run, self.facts, self.history, self._events, Samples(run, samples))
        self._export = self._sent_by(telemetry)
        self._ended = threading.Event()
        self._closing = threading.Lock()
        started = iso(datetime.now(UTC))
        address = None if page is None else self._shown_by(page)
        state = getattr(run, "state_place", None)
        self._file = RunFile(self.id, run.job, run.runtime, str(Owner.here()), started, _script(), address, state)
        self._folder: Path | None = None
        self._socket: ControlSocket | None = None
        self._thread = threading.Thread(target=self._watch, name="malflow-monitor", daemon=True)
        self._open()
        atexit.register(self._at_exit)
        try:
            self._thread.start()
        except RuntimeError as error:  # there can't be another one
            self._give_up(error)

    def _shown_by(self, page: Front) -> str | None:
        try:
            page.show(self)
        except (OSError, MalflowError, RuntimeError) as error:
            _log.warning("no page shows this run, which continues: %s", error)
        return page.address

    def note(self, event: Event) -> None:
        """Keep the facts of an event."""
        self._events.note(event)
        self.meters.note(event, lambda: self.run.progress)
        if self._export is not None:
            self._export.note(event)

    def note_tick(self, event: TickFinished) -> None:
        """Keep the duration of a tick; the run waits for this after every tick."""
        self.meters.note_tick(event)
        if self._export is not None:
            self._export.note(event)

    def progress(self) -> Progress:
        """Return the progress of the run."""
        return read_progress(self.run)

    def reading(self) -> Reading:
        """Return the facts from which metrics are read."""
        times, grew = self._times.latest()
        progress, now = self.progress(), time.monotonic()
        self.meters.sample(progress, now)
        return Reading(self.facts, progress, self.meters, now, times, grew)

    def close(self, status: str) -> None:
        """Show that the run has ended; in a forked child of its process, do nothing.

        Args:
            status: ``ended``, ``failed``, or ``abandoned`` if its process ends before it.
        """
        if os.getpid() != self._pid:
            return
        with self._closing:
            if self.is_over:
                return
            self.is_over = True
        self._ended.set()
        if self._folder is not None:
            with suppress(OSError):
                socket_of(self._folder, self.id).unlink()
            try:
                write(self._folder, self._file.closed(status))
            except OSError:
                remove(self._folder, self.id)
        if self._socket is not None:
            self._socket.close()

    def _open(self) -> None:
        """Make the file and the socket of the run, if there is a place for them."""
        try:
            self._folder = place()
            self._socket = ControlSocket(socket_of(self._folder, self.id), self.answers.answer)
            write(self._folder, self._file)
        except (OSError, NoPlace, RuntimeError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        _log.warning("malflow ps and the other commands can't find this run, which continues: %s", error)
        if self._socket is not None:
            self._socket.close()
        if self._folder is not None:
            remove(self._folder, self.id)
        self._folder, self._socket = None, None

    def _at_exit(self) -> None:
        """Close at the end of the process. It may come before the end of a run in a thread."""
        self.close("abandoned")
        if os.getpid() != self._pid:
            return
        if self._export is not None:
            self._thread.join(_LAST_SECONDS)
        if self._socket is not None:
            self._socket.join(_LAST_SECONDS)

    def _sent_by(self, telemetry: Exports | None) -> Export | None:
        if telemetry is None:
            return None
        try:
            return telemetry.begin(self)
        except Exception:  # noqa: BLE001 - of another library; the run continues
            _log.warning("the metrics of this run are not sent; it continues", exc_info=True)
            return None

    def _close_export(self) -> None:
        if self._export is None:
            return
        try:
            self._export.close()
        except Exception:  # noqa: BLE001 - of another library
            _log.warning("the last metrics of a run were not sent", exc_info=True)
        self._export = None

    def _watch(self) -> None:
        try:
            if self._folder is not None:
                clear_away()
            while not self._ended.is_set():
                progress, now = self.progress(), time.monotonic()
                self.history.add(progress, now)
                self.meters.sample(progress, now)
                if self._export is not None:
                    self._export.turn()
                self._ended.wait(_SECONDS)
                if self.run.has_ended:  # without an event, if it has failed before the first one
                    self.close("ended" if self.run.progress.status == "ended" else "failed")
        except Exception:  # noqa: BLE001 - the run continues
            _log.warning("the monitor of the run failed; the run continues", exc_info=True)
        if self.is_over:
            self._close_export()
            if self._socket is not None:
                self._socket.join(_LAST_SECONDS)
            atexit.unregister(self._at_exit)


def _script() -> str | None:
    """Return the path of the script; its arguments may hold secrets."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not isinstance(file, str):
        return None
    with suppress(OSError, ValueError):  # this folder has been removed
        return str(Path(file).absolute())
    return file
