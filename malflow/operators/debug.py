"""Checks that are too slow for production: ``debug=True`` on a runtime.

Batching is invisible as long as no value changes between emission and reading. With checks on, operators receive
records one by one, and each value's fingerprint is taken on emission and compared on reading.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from malflow.diagnostics import operator_error
from malflow.message import NoKey
from malflow.operators.contract import Operator
from malflow.records.batch import Batch
from malflow.records.columnar import is_columnar, read_apart
from malflow.states.keyed import ATOMIC_TYPES
from malflow.words import short_repr

__all__ = ["Trail", "verify", "verify_kinds", "verify_placement", "watch"]


_LAZY = (CoroutineType, AsyncGeneratorType, GeneratorType)


@dataclass(frozen=True, slots=True)
class _Watched(Batch):
    """A batch, the operator that emitted it, and the fingerprints of its values at that time.

    Attributes:
        placed: the key that chose the worker of each record, if it may differ from the current key.
    """

    emitter: str = ""
    looks: Sequence[bytes | str | None] = ()
    placed: Sequence[Any] | None = None


class Trail(Sequence[Batch]):
    """Batches cut into single records and epochs; remembers the one being processed.

    Args:
        batches: the batches.
        keeps_columns: whether a record of columns stays one, since an operator downstream needs columns.
    """

    def __init__(self, batches: Iterable[Batch], *, keeps_columns: bool = False) -> None:
        self.pieces: list[_Watched] = [
            piece for batch in batches for piece in _one_by_one(batch if keeps_columns else batch.listed())
        ]
        self._current: _Watched | None = None

    def __iter__(self) -> Iterator[Batch]:
        for piece in self.pieces:
            self._current = piece
            yield piece

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: Any) -> Any:
        return self.pieces[index]

    @property
    def placed(self) -> Sequence[Any]:
        """The key that chose the worker of the current record, if there is one."""
        piece = self._current
        if piece is None or not len(piece):
            return ()
        return piece.placed or piece.keys or ()


def _one_by_one(batch: Batch) -> Iterator[_Watched]:
    placed = batch.placed if isinstance(batch, _Watched) else None
    at = 0
    for records, epochs in batch.segments():
        for index in range(len(records)):
            piece = records.part(index, index + 1)
            origin = None if placed is None else placed[at : at + 1]
            yield _Watched(piece.keys, piece.values, piece.timestamps, placed=origin)
            at += 1
        for epoch in epochs:
            yield _Watched(None, (), (), ((0, epoch),))


def watch(batch: Batch, emitter: str, placed: Sequence[Any] = ()) -> Batch:
    """Record the fingerprints of a batch's values, and the keys that placed its records, if known."""
    looks = [_look(value) for value in read_apart(batch.values)]
    origins = list(placed) * len(batch) if placed and batch.keys is not None else None
    return _Watched(batch.keys, batch.values, batch.timestamps, batch.epochs, emitter, looks, origins)


def verify_kinds(batch: Batch, reader: Operator, *, at_the_end: bool) -> None:
    """Check that no value is an unstarted coroutine, or a generator that no operator iterates over.

    Raises:
        OperatorError: naming the reader.
    """
    if is_columnar(batch.values) and batch.values.batch is not None:  # of Arrow: no objects
        return
    lazy = _LAZY if at_the_end else (CoroutineType, AsyncGeneratorType)
    for index, value in enumerate(batch.values):
        if isinstance(value, lazy):
            reason = (
                f"its value is a {type(value).__name__} that has not run; call .flat_map() with a function "
                "that yields, or .flatten() before, and write functions without 'async'"
            )
            key: Any = NoKey if batch.keys is None else batch.keys[index]
            raise reader.error(reason, (key, value, batch.timestamps[index]))


def verify_placement(batch: Batch, reader: Operator) -> None:
    """Check that records with a changed key would be on the right worker even with two workers.

    Raises:
        OperatorError: naming the operator that would look up the key's state on another worker.
    """
    placement, workers = reader.context.placement, range(max(2, len(reader.context.workers)))
    if not isinstance(batch, _Watched) or batch.placed is None or batch.keys is None or placement is None:
        return
    for index, (key, origin) in enumerate(zip(batch.keys, batch.placed, strict=True)):
        if key is not origin and placement(key, workers) != placement(origin, workers):
            reason = (
                f"its key was {short_repr(origin)} at .key_distribute() and was changed since: with {len(workers)} "
                "workers, the record and its state would be on different ones; keep the key as it is, or call "
                ".key_distribute() again"
            )
            raise reader.error(reason, (key, batch.values[index], batch.timestamps[index]))


def verify(batch: Batch, reader: str) -> None:
    """Check that the values of a batch have not changed since it was emitted.

    Raises:
        OperatorError: naming the operator that emitted the changed value.
    """
    if not isinstance(batch, _Watched):
        return
    for index, (value, look) in enumerate(zip(read_apart(batch.values), batch.looks, strict=True)):
        if _look(value) != look:
            before = short_repr(pickle.loads(look)) if isinstance(look, bytes) else look  # noqa: S301 - pickled here
            reason = (
                f"the value it emitted was changed before operator '{reader}' read it: it was {before}; an "
                "emitted value must not contain a state that changes later, and the operators that read a stream share "
                "its values; emit a copy"
            )
            key: Any = NoKey if batch.keys is None else batch.keys[index]
            raise operator_error(batch.emitter, reason, (key, value, batch.timestamps[index]))


def _look(value: Any) -> bytes | str | None:
    if type(value) in ATOMIC_TYPES:
        return None
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - an object that can't be pickled is compared by its repr
        return short_repr(value)
