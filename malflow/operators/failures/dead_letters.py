"""The dead letters of one operator on one worker, as a hidden state of the operator.

Since they are state, they are as exactly-once as any other: a repeated tick makes the same letters, snapshots have
them, and a rescale moves them. Their entries consist of plain values, so that a later version of malflow can read them.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from traceback import extract_tb, format_list
from typing import Any, NamedTuple

from malflow.diagnostics import is_of_malflow
from malflow.event_time.tick import Tick
from malflow.failures import PARKED, DeadLetter
from malflow.operators.contract import OperatorContext
from malflow.partitioners import Partitioner, rendezvous_select
from malflow.states.keyed import Delta, KeyedState
from malflow.words import error_text, qualified_name, short_repr

__all__ = [
    "FOLLOWS",
    "LETTERS",
    "REFUSED",
    "UNWRITTEN",
    "Chosen",
    "FailedTry",
    "Letters",
    "age_of",
    "as_text",
    "letter_of",
    "masked",
    "oldest_first",
    "parks",
    "place_letter",
]

LETTERS = "letters"
"""The role of the hidden state with dead letters."""

UNWRITTEN, REFUSED = f"unwritten/{LETTERS}", f"refused/{LETTERS}"
"""The roles of the letters that the process of a sink keeps: of records that the sink did not take, and of items that
its external system refused at a commit."""

_LONGEST = 4096
"""Characters of an error and of its traceback. More: larger snapshots; fewer: less to diagnose an error by."""

_SLACK = 64
"""Stale entries that are always tolerated, so that few letters are not sorted by age again and again."""

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")

Record = tuple[Any, Any, Any]
"""The key, the value and the timestamp of a record."""

Chosen = tuple[tuple[str, Any], DeadLetter]
"""A letter, after the key of its entry in the state."""

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
    is_parked: bool = False
    input: int = 0
    columns: bytes | None = None


def _plain(fields: _Fields) -> Entry:
    """Return an entry; letters of records that were no columns are as in earlier versions."""
    return tuple(fields) if fields.columns is not None else tuple(fields[:-1])


class FailedTry(NamedTuple):
    """The failure of a record, or the reason why it was not tried: it follows an earlier one of its key.

    Attributes:
        error: the name of the exception's class.
        message: its text.
        trace: the traceback in the user's code.
        place: the user's function with file and line, or the place of a record that could not be read.
        attempts: how often the record was tried.
    """

    error: str
    message: str
    trace: str
    place: str | None
    attempts: int

    @classmethod
    def of(cls, error: BaseException, place: str | None, attempts: int) -> FailedTry:
        """Return the failure of a call."""
        message = masked(error_text(error))[:_LONGEST]
        return cls(qualified_name(error), message, _trace(error), place, attempts)


FOLLOWS = FailedTry(PARKED, "an earlier record of its key is a dead letter, which it follows", "", None, 0)
"""The reason for a letter whose record was not tried, because it follows an earlier one of its key."""


class Letters:
    """The dead letters of an operator, by id, oldest first; the key of an entry is ``(id, key of the record)``.

    The second part of an entry's key is None if the keys of the operator's input have no worker.

    Args:
        context: the operator's context.
        placed_by: the partitioner that placed the keys of its input; None without one.
        mark: a letter before the numbers in their ids, if the operator has several of these states.

    Attributes:
        columns: the types of the columns that the next letters were rows of; None for other records.
        size: the serialised size of all letters, in bytes.
        parked: the number of letters of each parked key.
        is_placed: whether the keys of the operator's input have workers; they can then be parked.
    """

    def __init__(self, context: OperatorContext, placed_by: Partitioner | None, mark: str = "") -> None:
        self._mark = mark
        self._letters = KeyedState(tracked=context.tracked)
        self._context = context
        self.is_placed = placed_by is not None
        self._used = False  # most operators never have a letter: their deltas and snapshots are as if there were none
        self._tick = Tick()
        self._number = 0
        self.columns: bytes | None = None
        self.size = 0
        self.parked: Counter[Any] = Counter()
        self._by_age: deque[tuple[str, Any]] | None = None  # the entries, and some that are gone, once one is dropped

    @property
    def state(self) -> KeyedState | None:
        """The letters; None if there have never been any."""
        return self._letters if self._used else None

    def __len__(self) -> int:
        return len(self._letters)

    def __contains__(self, entry: tuple[str, Any]) -> bool:
        return entry in self._letters

    def begin_tick(self, tick: Tick) -> None:
        """Begin to count the letters of a tick; several calls of `run` may share it."""
        if tick.number != self._tick.number:
            self._number = 0
        self._tick = tick

    def make(self, record: Record, failure: FailedTry, edge: int = 0) -> DeadLetter:
        """Return the letter of a failed record, without keeping it.

        Args:
            record: the key, the value and the timestamp.
            failure: its failure.
            edge: the input of the operator that it came from.
        """
        return letter_of(self._context.operator_name, *self._made(record, failure, edge))

    def add(
        self,
        record: Record,
        failure: FailedTry,
        edge: int = 0,
        *,
        parks: bool = False,
        at: tuple[str, Any] | None = None,
    ) -> None:
        """Keep the letter of a failed record.

        Args:
            record: the key, the value and the timestamp.
            failure: its failure.
            edge: the input of the operator that it came from.
            parks: whether later records of the key follow it.
            at: the key of the entry that was tried again; the new letter takes its place in the order.

        Raises:
            ValueError: if it parks a key that can't be serialised, and so would be lost in a restart.
        """
        self._used = True
        entry, fields = self._made(record, failure, edge)
        if parks and entry[1] is None:
            raise ValueError(f"key {short_repr(record[0])} can't be serialised, so its records can't be parked")
        if at is not None:
            self.drop(at, keeps_place=True)
            entry = at
        self._letters[entry] = _plain(fields._replace(is_parked=parks))
        self._letters.touch((entry,))
        if at is None and self._by_age is not None:
            self._by_age.append(entry)
            if len(self._by_age) > 2 * len(self._letters) + _SLACK:
                self._by_age = None
        self.size += fields.size
        if parks:
            self.parked[entry[1]] += 1

    def _made(self, record: Record, failure: FailedTry, edge: int) -> tuple[tuple[str, Any], _Fields]:
        tick, worker = self._tick, self._context.worker_id
        (key, value, timestamp), size, is_text = _serialisable(record)
        message, trace = failure.message[:_LONGEST], failure.trace
        fields = _Fields(
            key,
            value,
            timestamp,
            failure.error,
            message,
            failure.place,
            trace,
            failure.attempts,
            tick.number,
            worker,
            tick.now,
            is_text,
            size + len(message) + len(trace) + len(self.columns or b""),
            input=edge,
            columns=self.columns,
        )
        owner = record[0] if self.is_placed and not (is_text and _serialisable((record[0], None, None))[2]) else None
        return (self._next_id(), owner), fields

    def _next_id(self) -> str:
        """Return an id that is new in this tick; marked letters may be made in several runs after the same tick."""
        prefix = f"{self._mark}{self._tick.number}-{self._context.worker_id}"
        self._number += 1
        while self._mark and (f"{prefix}-{self._number}", None) in self._letters:
            self._number += 1
        return f"{prefix}-{self._number}"

    def chosen(self, ids: Collection[str] | None) -> list[Chosen]:
        """Return the letters with these ids, or all, oldest first; each with its entry's key."""
        name = self._context.operator_name
        wanted = None if ids is None else frozenset(ids)
        entries = [(entry, it) for entry, it in self._letters.items() if wanted is None or entry[0] in wanted]
        return [(entry, letter_of(name, entry, it)) for entry, it in sorted(entries, key=_age)]

    def queues(self) -> dict[Any, deque[str]]:
        """Return the ids of the letters of each parked key, oldest first."""
        queues: dict[Any, deque[str]] = {}
        for entry, _ in sorted(
            ((entry, it) for entry, it in self._letters.items() if _Fields(*it).is_parked), key=_age
        ):
            queues.setdefault(entry[1], deque()).append(entry[0])
        return queues

    def columns_of(self, entry: tuple[str, Any]) -> bytes | None:
        """Return the types of the columns that the record of a letter was a row of; None if it was none."""
        return _Fields(*self._letters[entry]).columns

    def drop(self, entry: tuple[str, Any], *, keeps_place: bool = False) -> None:
        """Drop a letter by the key of its entry; with `keeps_place`, another letter takes its place."""
        fields = _Fields(*self._letters[entry])
        self.size -= fields.size
        if fields.is_parked:
            self.parked[entry[1]] -= 1
            if not self.parked[entry[1]]:
                del self.parked[entry[1]]
        if not keeps_place:
            del self._letters[entry]
            self._letters.touch((entry,))

    def drop_oldest(self) -> None:
        """Drop the oldest letter."""
        by_age = self._by_age
        if by_age is None:  # a rescale joins the letters of several workers
            by_age = self._by_age = deque(sorted(self._letters, key=lambda entry: age_of(entry[0])))
        while (oldest := by_age.popleft()) not in self._letters:
            pass  # it was replayed or removed
        self.drop(oldest)

    def sync_state(self) -> None:
        """Do nothing: the state is always up to date."""

    def delta(self) -> Delta:
        """Return the changes since the last call."""
        return self._letters.delta() if self._used else Delta()

    def apply(self, delta: Delta) -> None:
        """Apply a delta."""
        self._used = True
        self._by_age = None
        self._letters.apply(delta)
        entries = [(entry, _Fields(*it)) for entry, it in self._letters.items()]
        self.size = sum(it.size for _, it in entries)
        self.parked = Counter(entry[1] for entry, it in entries if it.is_parked)

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
    it = _Fields(*fields)
    return DeadLetter(entry[0], operator, *it[:-4], it.is_parked, it.input)


def as_text(fields: Entry) -> Entry:
    """Return an entry with its record replaced by the record's text."""
    it = _Fields(*fields)
    return _plain(it._replace(key=_text(it.key), value=_text(it.value), timestamp=_text(it.timestamp), is_text=True))


def parks(fields: Entry) -> bool:
    """Whether later records of its key follow a letter."""
    return _Fields(*fields).is_parked


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


def age_of(letter: str) -> tuple[int, ...]:
    """Return a key that sorts letters oldest first, from an id: the tick, the worker, and the number in the tick."""
    return tuple(map(int, letter.lstrip("ru").split("-")))


def oldest_first(letters: Mapping[tuple[str, Any], Entry]) -> list[tuple[tuple[str, Any], Entry]]:
    """Return the entries of letters with their keys, oldest first."""
    return sorted(letters.items(), key=_age)


def _age(letter: tuple[tuple[str, Any], Any]) -> tuple[int, ...]:
    return age_of(letter[0][0])


def _trace(error: BaseException) -> str:
    """Return the user's part of a traceback."""
    frames = [frame for frame in extract_tb(error.__traceback__) if not is_of_malflow(frame.filename)]
    text = "".join([*format_list(frames), f"{qualified_name(error)}: {error_text(error)[:_LONGEST]}"])
    return masked(text)[-_LONGEST:]


def masked(text: str) -> str:
    """Return a text without the addresses of objects. These differ when a tick is repeated.

    >>> masked("no room for <object object at 0x7f3c2b1a4d50>")
    'no room for <object object at 0x...>'
    """
    return _ADDRESS.sub("0x...", text)
