"""The dead letters of one operator on one worker, as a hidden state of the operator.

Since they are state, they are as exactly-once as any other: a repeated tick makes the same letters, snapshots have
them, and a rescale moves them. Their entries consist of plain values, so that a later version of malflow can read them.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Collection, Sequence
from datetime import datetime
from traceback import extract_tb, format_list
from typing import Any, NamedTuple

from malflow.diagnostics import is_of_malflow
from malflow.errors import error_text, short_repr
from malflow.event_time.tick import Tick
from malflow.failures import DeadLetter
from malflow.operators.contract import OperatorContext
from malflow.partitioners import Partitioner, rendezvous_select
from malflow.states.keyed import Delta, KeyedState

__all__ = ["LETTERS", "Letters", "as_text", "letter_of", "masked", "place_letter"]

LETTERS = "letters"
"""The role of the hidden state with dead letters."""

_LONGEST = 4096
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")

Record = tuple[Any, Any, Any]
"""The key, the value and the timestamp of a record."""

Entry = tuple[Any, ...]
"""A letter in the state: the fields of `_Fields`, as a plain tuple."""


class _Fields(NamedTuple):
    key: Any
    value: Any
    timestamp: Any
    error: str
    message: str
    place: str | None
    trace: str
    attempts: int
    tick: int
    worker: int
    at: datetime
    is_text: bool
    size: int


class Letters:
    """The dead letters of an operator, by id, oldest first; the key of an entry is ``(id, key of the record)``.

    The second part of an entry's key is None if the keys of the operator's input have no worker.

    Args:
        context: the operator's context.
        placed_by: the partitioner that placed the keys of its input; None without one.

    Attributes:
        size: the bytes of all letters, serialised.
    """

    def __init__(self, context: OperatorContext, placed_by: Partitioner | None) -> None:
        self._letters = KeyedState(tracked=context.tracked)
        self._context = context
        self._is_placed = placed_by is not None
        self._used = False  # most operators never have a letter: their deltas and snapshots are as if there were none
        self._tick = Tick()
        self._number = 0
        self.size = 0

    @property
    def state(self) -> KeyedState | None:
        """The letters; None if there have never been any."""
        return self._letters if self._used else None

    def __len__(self) -> int:
        return len(self._letters)

    def begin_tick(self, tick: Tick) -> None:
        """Begin to count the letters of a tick; several calls of `run` may share it."""
        if tick.number != self._tick.number:
            self._number = 0
        self._tick = tick

    def make(self, record: Record, error: BaseException, place: str | None, attempts: int = 1) -> DeadLetter:
        """Return the letter of a failed record, without keeping it; for the arguments see `add`."""
        return letter_of(self._context.operator_name, *self._made(record, error, place, attempts))

    def add(self, record: Record, error: BaseException, place: str | None, attempts: int = 1) -> None:
        """Keep the letter of a failed record.

        Args:
            record: the key, the value and the timestamp.
            error: the exception of the user's function.
            place: the user's function, with file and line.
            attempts: how often the record was tried.
        """
        self._used = True
        entry, fields = self._made(record, error, place, attempts)
        self._letters[entry] = tuple(fields)
        self._letters.touch((entry,))
        self.size += fields.size

    def _made(
        self, record: Record, error: BaseException, place: str | None, attempts: int
    ) -> tuple[tuple[str, Any], _Fields]:
        self._number += 1
        tick, worker = self._tick, self._context.worker_id
        (key, value, timestamp), size, is_text = _serialisable(record)
        message, trace = masked(error_text(error))[:_LONGEST], _trace(error)
        fields = _Fields(
            key,
            value,
            timestamp,
            type(error).__qualname__,
            message,
            place,
            trace,
            attempts,
            tick.number,
            worker,
            tick.now,
            is_text,
            size + len(message) + len(trace),
        )
        return (f"{tick.number}-{worker}-{self._number}", record[0] if self._is_placed else None), fields

    def chosen(self, ids: Collection[str] | None) -> list[tuple[tuple[str, Any], DeadLetter]]:
        """Return the letters with these ids, or all, oldest first; each with its entry's key."""
        name = self._context.operator_name
        entries = [(entry, it) for entry, it in self._letters.items() if ids is None or entry[0] in ids]
        return [(entry, letter_of(name, entry, it)) for entry, it in entries]

    def drop(self, entry: tuple[str, Any]) -> None:
        """Drop a letter by its entry's key."""
        self.size -= _Fields(*self._letters.pop(entry)).size
        self._letters.touch((entry,))

    def drop_oldest(self) -> None:
        """Drop the oldest letter."""
        self.drop(next(iter(self._letters)))

    def sync_state(self) -> None:
        """Do nothing: the state is always up to date."""

    def delta(self) -> Delta:
        """Return the changes since the last call."""
        return self._letters.delta() if self._used else Delta()

    def apply(self, delta: Delta) -> None:
        """Apply a delta."""
        self._used = True
        self._letters.apply(delta)
        self.size = sum(_Fields(*it).size for it in self._letters.values())

    def forget(self) -> None:
        """Make the next delta complete."""
        self._letters.forget()


def letter_of(operator: str, entry: tuple[str, Any], fields: Entry) -> DeadLetter:
    """Return a letter from its entry in the state.

    Args:
        operator: the operator.
        entry: the key of the entry.
        fields: the entry.
    """
    return DeadLetter(entry[0], operator, *_Fields(*fields)[:-1])


def as_text(fields: Entry) -> Entry:
    """Return an entry whose record is replaced by its text."""
    it = _Fields(*fields)
    return tuple(it._replace(key=_text(it.key), value=_text(it.value), timestamp=_text(it.timestamp), is_text=True))


def place_letter(placed_by: Partitioner | None, entry: tuple[str, Any], workers: Sequence[int]) -> int:
    """Return the worker of a letter: that of the record's key, or, if records have no worker by key, one by its id."""
    name, key = entry
    return rendezvous_select(name, workers) if placed_by is None or key is None else placed_by(key, workers)


def _serialisable(record: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any, Any], int, bool]:
    """Return a copy of a record, or its texts if it can't be serialised; with its size, and whether it is texts."""
    try:
        data = pickle.dumps(record, 5)
        return pickle.loads(data), len(data), False  # noqa: S301 - just written
    except Exception:  # noqa: BLE001 - a letter must not end the run that it saves, whatever the user's classes raise
        texts = _text(record[0]), _text(record[1]), _text(record[2])
        return texts, sum(map(len, texts)), True


def _text(thing: Any) -> str:
    return masked(short_repr(thing))


def _trace(error: BaseException) -> str:
    """Return the user's part of a traceback."""
    frames = [frame for frame in extract_tb(error.__traceback__) if not is_of_malflow(frame.filename)]
    text = "".join([*format_list(frames), f"{type(error).__qualname__}: {error_text(error)[:_LONGEST]}"])
    return masked(text)[-_LONGEST:]


def masked(text: str) -> str:
    """Return a text without the addresses of objects, which differ when a tick is repeated.

    >>> masked("no room for <object object at 0x7f3c2b1a4d50>")
    'no room for <object object at 0x...>'
    """
    return _ADDRESS.sub("0x...", text)
