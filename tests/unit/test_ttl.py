"""What a `ttl_map` makes of a state that another worker has brought forward."""

from __future__ import annotations

import pickle
from typing import Any

from malflow.batch import Batch
from malflow.operators.contract import OperatorContext
from malflow.operators.ttl import TtlMap


def keep(key: str, value: str, timestamp: int, entries: Any) -> Any:
    """Put an entry that expires at the time of its record; emit what was there."""
    before = sorted(entries)
    entries.insert(value, timestamp, timestamp)
    return before, entries


def batch(values: str, timestamps: tuple[int, ...], *epochs: tuple[int, int]) -> Batch:
    return Batch(["k"] * len(values), list(values), list(timestamps), epochs)


def test_an_entry_that_was_late_stays_until_the_next_epoch_wherever_its_key_is() -> None:
    here, there = (TtlMap(OperatorContext("ttl", 0, range(1), tracked=True), keep) for _ in range(2))
    first = batch("a", (5,), (1, 5))  # the epoch 5 comes after the record
    for operator in (here, there):
        operator.process(first)
        operator.delta()
    here.process(batch("b", (4,)))
    there.apply(pickle.loads(pickle.dumps(here.delta())))
    for operator in (here, there):
        (more,) = operator.process(batch("c", (3,)))
        assert more.values == [["b"]]
        operator.process(batch("", (), (0, 6)))
        (last,) = operator.process(batch("d", (7,)))
        assert last.values == [[]]
