"""``malflow run --tap`` and ``--replay``: records that leave an operator, and dead letters that are replayed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from itertools import islice
from typing import Any, Final

from malflow.cli.output.error_report import end_of_output
from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.output import Output, document_line
from malflow.engine.taps import Tap
from malflow.errors import MalflowError
from malflow.events import Event, Run, RunFinished, RunStarted
from malflow.failures import Replayed
from malflow.monitor.samples import Redact, record_texts
from malflow.records.batch import Batch
from malflow.words import plural

__all__ = [
    "ReplayingListener",
    "TappingListener",
    "check_passes_here",
    "outcome_lines",
]

_MOST: Final = 100
"""The most records of an operator that are written in a second."""

_PLACES: Final = {"processes": "in other processes", "spark": "in the processes of Spark"}


def check_passes_here(kind: str) -> None:
    """Check that the records of a run pass through this process.

    Raises:
        CommandError: if they don't.
    """
    if kind != "single":
        raise CommandError(
            f"--tap shows records on one thread only, and those of this flow pass {_PLACES[kind]}; add --on single, or "
            "a sink that writes them",
            Exit.USAGE,
        )


class _Printer(Tap):
    """Writes records, a limited number each second; the others are counted."""

    def __init__(
        self, operator: str, redact: Redact | None, stop: Callable[[], object], clock: Callable[[], float]
    ) -> None:
        super().__init__(operator)
        self._redact = redact
        self._stop = stop
        self._clock = clock
        self._read = clock()
        self._left: float = _MOST
        self._lines: list[tuple[int, dict[str, str]]] = []
        self.left_out = 0
        self.reader_is_gone = False

    def take(self, output: int, batch: Batch) -> None:
        """Note the texts of records, as many as may be written."""
        wanted = min(len(batch), int(self._left))
        self._left -= wanted
        self.left_out += len(batch) - wanted
        if wanted:
            messages = islice(batch.part(0, wanted).messages(), wanted)
            self._lines += [(output, record_texts(it, self._redact)) for it in messages]

    def end_tick(self, tick: int) -> bool:
        """Write the lines of a tick; return whether anybody reads them."""
        lines, self._lines = self._lines, []
        if lines:
            self._write(
                "".join(
                    f"{document_line('record', operator=self.operator, tick=tick, output=output, **texts)}\n"
                    for output, texts in lines
                )
            )
        now = self._clock()
        self._left = min(float(_MOST), self._left + (now - self._read) * _MOST)
        self._read = now
        return not self.reader_is_gone

    def _write(self, text: str) -> None:
        try:
            if sys.stdout is not None:
                sys.stdout.write(text)
                sys.stdout.flush()
        except BrokenPipeError:
            end_of_output()
            self.reader_is_gone = True
            self._stop()


class TappingListener:
    """A listener that taps an operator of a run.

    Args:
        operator: the name of the operator.
        redact: hides parts of a record; None shows all of it.
        output: how to write.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, operator: str, redact: Redact | None, output: Output, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._operator = operator
        self._redact = redact
        self._output = output
        self._clock = clock
        self._printer: _Printer | None = None

    def on_start(self, run: Run, /) -> None:
        """Tap the operator from the first tick on."""
        self._printer = _Printer(self._operator, self._redact, run.stop, self._clock)
        run.tap(self._printer)

    def on_event(self, event: Event, /) -> None:
        """At the end, write the number of records that were left out."""
        if isinstance(event, RunFinished) and self._printer is not None and self._printer.left_out:
            self._output.say(
                f"{plural(self._printer.left_out, 'record')} of operator '{self._operator}' were left out: "
                f"--tap shows {_MOST} a second"
            )

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run was stopped because the reader of standard output has exited."""
        return self._printer is not None and self._printer.reader_is_gone


def outcome_lines(operator: str, verb: str, done: Replayed) -> Iterator[str]:
    """Yield the number of dead letters that were replayed or removed, and the reasons why others stay."""
    yield f"{plural(done.done, 'dead letter')} of operator '{operator}' {verb}"
    if done.late:
        yield (
            f"{done.late} stay, since their timestamps are at or before the epoch of '{operator}'; guard an operator "
            "before it"
        )
    if done.texts:
        yield f"{done.texts} stay, since only the texts of their records, or a whole transaction, are known"
    if done.parked:
        yield f"{done.parked} stay, since an earlier letter of their key stays"


class ReplayingListener:
    """A listener that replays all dead letters of an operator in the first tick of a run.

    Args:
        operator: the name of the operator.
        output: how to write.
    """

    def __init__(self, operator: str, output: Output) -> None:
        self._operator = operator
        self._output = output
        self._run: Run | None = None

    def on_start(self, run: Run, /) -> None:
        """Take the handle of the run."""
        self._run = run

    def on_event(self, event: Event, /) -> None:
        """Request the replay once the state is restored."""
        if isinstance(event, RunStarted) and not event.restarts and self._run is not None:
            self._run.replay(self._operator).add_done_callback(self._tell)

    def _tell(self, answer: Future[Any]) -> None:
        try:
            done = answer.result()
        except (CancelledError, MalflowError) as error:
            self._output.say(f"dead letters of operator '{self._operator}' were not replayed: {error}")
            return
        for line in outcome_lines(self._operator, "replayed", done):
            self._output.say(line)
