"""Asks a run at its ticks, and compares the answers with lists that were counted by hand."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from malflow.events import Event, TickFinished
from malflow.runtime.requests.queries import StateAnswer

__all__ = ["SECONDS", "Asker", "in_a_thread", "records_by_tick", "totals"]

SECONDS = 60


def in_a_thread(action: Callable[[], Any]) -> Any:
    """Run an action in another thread, and return its result."""
    done: Future[Any] = Future()

    def act() -> None:
        try:
            done.set_result(action())
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            done.set_exception(error)

    thread = threading.Thread(target=act)
    thread.start()
    thread.join(SECONDS)
    return done.result(timeout=0)


class Asker:
    """A listener that asks after each tick, in another thread, and does not wait.

    Args:
        ask: returns the futures that it asks for, by name.
        do: what to do after some ticks, such as to ask for a rescale.

    Attributes:
        asked: the questions in order, each with its future.
        records: how many records had been read after each tick.
    """

    def __init__(
        self,
        ask: Callable[[], Mapping[Any, StateAnswer[Any]]],
        do: Mapping[int, Callable[[], object]] | None = None,
    ) -> None:
        self._ask = ask
        self._do = do or {}
        self.asked: list[tuple[Any, StateAnswer[Any]]] = []
        self.records: dict[int, int] = {0: 0}
        self._read = 0

    def on_event(self, event: Event) -> None:
        if not isinstance(event, TickFinished):
            return
        self._read += event.polled
        self.records[event.tick] = self._read
        self._do.get(event.tick, int)()
        self.asked += in_a_thread(self._ask).items()


def records_by_tick(asker: Asker, answer: StateAnswer[Any]) -> int:
    """Return how many records an answer is about."""
    assert answer.tick is not None
    return asker.records[answer.tick]


def totals(values: Sequence[int], keys: int) -> dict[int, int]:
    """Return the number of values by key."""
    return dict(Counter(value % keys for value in values))
