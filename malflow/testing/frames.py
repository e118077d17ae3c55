"""Tables as inputs of tests: their rows in frames of drawn sizes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from malflow.columns import Frame
from malflow.columns.answers import AnswerReader, as_batch

__all__ = ["frames_of"]

_LARGEST = 12
"""The most rows of a frame. More: schedules have fewer places for a crash; fewer: functions of batches see less."""


def frames_of(table: Any, chance: str) -> Iterator[Frame]:
    """Yield the rows of a table, or of another object with ``__arrow_c_stream__``, in frames of several sizes.

    Args:
        table: the table.
        chance: seeds the sizes.

    >>> import pyarrow as pa
    >>> [len(frame) for frame in frames_of(pa.table({"n": [*range(20)]}), "example")]
    [5, 4, 3, 8]
    """
    found, at = as_batch(table), 0
    batch = AnswerReader(None).read(found, found.num_rows)
    sizes = random.Random(chance)  # noqa: S311 - it keeps no secret
    while at < batch.num_rows:
        size = sizes.randint(1, _LARGEST)
        yield Frame(batch.slice(at, size))
        at += size
