"""``malflow run --replay``, and the lines about dead letters that were replayed or removed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

from malflow.cli.output import Output
from malflow.errors import MalflowError
from malflow.events import Event, Run, RunStarted
from malflow.failures import Replayed
from malflow.words import plural

__all__ = ["ReplayingListener", "outcome_lines"]


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
