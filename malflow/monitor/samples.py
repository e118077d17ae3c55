"""Samples: the last records of an operator, for people who look at a run from outside.

A record is kept as a short text, and only after the user's own function has hidden parts of it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from malflow.engine.taps import Tap
from malflow.errors import GraphError
from malflow.events import Run
from malflow.message import DataMessage
from malflow.records.batch import Batch
from malflow.store.redaction import safe_repr
from malflow.words import iso

__all__ = ["NOT_SHOWN", "Redact", "SampleSettings", "Samples", "TooManySamples", "record_texts"]

Redact: TypeAlias = Callable[[DataMessage[Any, Any, Any]], Any]
"""Returns a message in which parts are hidden; it must not change the one that it gets."""

_SECONDS: Final = 0.25
"""The least time between two samples of an operator."""
_UNSEEN_SECONDS: Final = 10.0
"""The time after which an operator is no longer sampled if nobody asks."""
_KEPT: Final = 20
"""The samples to keep of an operator: five seconds of them at four a second. Half of it may lose samples between two
looks, double sends more of them each time."""

_MOST: Final = 16
"""The most operators that are sampled at the same time."""


NOT_SHOWN: Final = (
    "records are not shown, since they may be secret; write samples = true in [serve] of malflow.toml, and "
    'redact = "module:function" to hide parts of them'
)


class TooManySamples(Exception):
    """So many operators are being sampled that no other can be."""


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """Whether records may be shown, and how.

    Attributes:
        are_shown: whether they may be shown.
        redact: hides parts of a record first; None shows all of it.
    """

    are_shown: bool = False
    redact: Redact | None = None


def record_texts(message: DataMessage[Any, Any, Any], redact: Redact | None) -> dict[str, str]:
    """Return the key, the value and the timestamp of a record as texts.

    If `redact` fails, or returns anything but a message, the texts say so and show nothing of the record.
    """
    if redact is not None:
        try:
            found = redact(message)
        except Exception as error:  # noqa: BLE001 - any error of the user's function
            return _hidden(f"<hidden: redact failed with {type(error).__name__}>")
        if not isinstance(found, DataMessage):
            return _hidden(f"<hidden: redact returned {type(found).__name__}, not a DataMessage>")
        message = found
    return {"key": safe_repr(message.key), "value": safe_repr(message.value), "timestamp": safe_repr(message.timestamp)}


def _hidden(reason: str) -> dict[str, str]:
    return dict.fromkeys(("key", "value", "timestamp"), reason)


class _Sampler(Tap):
    """Keeps the last record of a tick, a few times a second, while somebody looks."""

    def __init__(self, operator: str, redact: Redact | None, clock: Callable[[], float]) -> None:
        super().__init__(operator)
        self._redact = redact
        self._clock = clock
        self._last: tuple[int, Batch] | None = None
        self._number = 0
        self._due = clock()
        self.found: deque[Mapping[str, Any]] = deque(maxlen=_KEPT)
        self.seen = clock()
        self.is_over = False

    def take(self, output: int, batch: Batch) -> None:
        """Note the last batch of a tick."""
        self._last = output, batch

    def end_tick(self, tick: int) -> bool:
        """Keep the last record; return whether somebody has looked lately."""
        now = self._clock()
        if now - self.seen > _UNSEEN_SECONDS:
            self.is_over = True
            return False
        last, self._last = self._last, None
        if last is not None and now >= self._due:
            self._due = now + _SECONDS
            self._keep(tick, *last)
        return True

    def _keep(self, tick: int, output: int, batch: Batch) -> None:
        (message,) = batch.part(len(batch) - 1, len(batch)).messages()
        self._number += 1
        facts = {"number": self._number, "at": iso(datetime.now(UTC)), "tick": tick, "output": output}
        self.found.append({**facts, **record_texts(message, self._redact)})


class Samples:
    """The samples of a run's operators, each for as long as somebody asks for it.

    Args:
        run: the run.
        settings: whether records may be shown, and how.
        clock: a clock that only advances, in seconds.
    """

    def __init__(self, run: Run, settings: SampleSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._by_operator: dict[str, _Sampler] = {}

    @property
    def are_shown(self) -> bool:
        """Whether records may be shown."""
        return self._settings.are_shown

    def of(self, operator: str, after: int = 0) -> list[Mapping[str, Any]]:
        """Return the last records of an operator, oldest first; the first call begins to sample it.

        Args:
            operator: the operator.
            after: the number of the last record that is known already.

        Raises:
            GraphError: if records are not shown, or there is no such operator.
            UnsupportedOperator: if the run is not on one thread.
            TooManySamples: if too many other operators are being sampled.
        """
        if not self.are_shown:
            raise GraphError(NOT_SHOWN)
        with self._lock:
            sampler = self._sampler(operator)
            sampler.seen = self._clock()
            return [it for it in sampler.found.copy() if it["number"] > after]

    def _sampler(self, operator: str) -> _Sampler:
        now = self._clock()
        for name, it in [*self._by_operator.items()]:
            if it.is_over or now - it.seen > _UNSEEN_SECONDS:
                it.is_over = True
                del self._by_operator[name]
        found = self._by_operator.get(operator)
        if found is None:
            if len(self._by_operator) >= _MOST:
                raise TooManySamples(f"{_MOST} operators are being sampled; try again in {_UNSEEN_SECONDS:g} s")
            found = _Sampler(operator, self._settings.redact, self._clock)
            self._run.tap(found)
            self._by_operator[operator] = found
        return found
