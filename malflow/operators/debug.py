"""Checks that cost too much to run always: ``debug=True`` on a runtime.

Batching is invisible as long as no value changes between its emission and its reading. With checks on, operators get
their records one by one; what each value looked like is noted when it is emitted, and compared when it is read.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from malflow.batch import Batch
from malflow.message import NoKey
from malflow.operators.failure import operator_error, shown
from malflow.state import ATOMIC_TYPES

__all__ = ["one_by_one", "verify", "watch"]


@dataclass(frozen=True, slots=True)
class _Watched(Batch):
    """A batch that knows who emitted it, and what its values looked like then."""

    emitter: str = ""
    looks: Sequence[bytes | str | None] = ()


def one_by_one(batch: Batch) -> Iterator[Batch]:
    """Cut a batch into batches of one record or one epoch."""
    for records, epochs in batch.segments():
        for index in range(len(records)):
            yield records.part(index, index + 1)
        for epoch in epochs:
            yield Batch(None, (), (), ((0, epoch),))


def watch(batch: Batch, emitter: str) -> Batch:
    """Note what the values of a batch look like now."""
    looks = [_look(value) for value in batch.values]
    return _Watched(batch.keys, batch.values, batch.timestamps, batch.epochs, emitter, looks)


def verify(batch: Batch, reader: str) -> None:
    """Check that the values of a batch look as they did when it was emitted.

    Raises:
        OperatorError: naming the operator that emitted a value which has changed since.
    """
    if not isinstance(batch, _Watched):
        return
    for index, (value, look) in enumerate(zip(batch.values, batch.looks, strict=True)):
        if _look(value) != look:
            before = shown(pickle.loads(look)) if isinstance(look, bytes) else look  # noqa: S301 - pickled here
            reason = (
                f"the value it emitted was changed before operator '{reader}' read it: it was {before}; a state "
                "inside an emitted value goes on changing, and readers of one stream share its values; emit a copy"
            )
            key: Any = NoKey if batch.keys is None else batch.keys[index]
            raise operator_error(batch.emitter, reason, (key, value, batch.timestamps[index]))


def _look(value: Any) -> bytes | str | None:
    if type(value) in ATOMIC_TYPES:
        return None
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - what can't be pickled is compared by how it reads
        return shown(value)
