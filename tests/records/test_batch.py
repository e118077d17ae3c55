"""Batches against plain lists of records and epochs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage, NoKey
from malflow.records.batch import Batch, concat, interleave

events = st.lists(st.one_of(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), st.integers(100, 200)), max_size=12)


def batch_of(items: list[Any], *, keyed: bool = True) -> Batch:
    """Make a batch of records, which are (key, value), and epochs, which are numbers."""
    records = [item for item in items if isinstance(item, tuple)]
    epochs, position = [], 0
    for item in items:
        if isinstance(item, tuple):
            position += 1
        else:
            epochs.append((position, item))
    keys = [key for key, _ in records] if keyed else None
    return Batch(keys, [value for _, value in records], range(len(records)), epochs)


def flow_of(batch: Batch) -> list[Any]:
    """Return the records and epochs of a batch in order."""
    flow: list[Any] = []
    for records, epochs in batch.segments():
        flow.extend((message.key, message.value) for message in records.messages())
        flow.extend(epochs)
    return flow


@given(events)
def test_segments_give_everything_in_order(items: list[Any]) -> None:
    assert flow_of(batch_of(items)) == items
    assert bool(batch_of(items)) == bool(items)


@given(events, st.integers(0, 9))
def test_select_keeps_epochs_in_their_place(items: list[Any], limit: int) -> None:
    batch = batch_of(items)
    kept = batch.select([value < limit for value in batch.values])
    assert flow_of(kept) == [item for item in items if not isinstance(item, tuple) or item[1] < limit]


@given(st.lists(st.booleans(), max_size=60), st.lists(st.integers(0, 60), max_size=60))
def test_a_mask_of_bytes_selects_as_one_of_flags(flags: list[bool], drawn: list[int]) -> None:
    values = list(range(len(flags)))
    epochs = [(at, number) for number, at in enumerate(sorted(at for at in drawn if at <= len(flags)))]
    batch = Batch(values, values, values, epochs)
    assert flow_of(batch.select(bytes(flags))) == flow_of(batch.select(flags))


@given(st.lists(events, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_concat_puts_flows_one_after_the_other(flows: list[list[Any]], keyed: list[bool]) -> None:
    batches = [batch_of(items, keyed=flag) for items, flag in zip(flows, keyed, strict=False)]
    assert flow_of(concat(batches)) == [item for batch in batches for item in flow_of(batch)]


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=6), max_size=4))
def test_interleave_takes_turns(flows: list[list[Any]]) -> None:
    expected: list[Any] = []
    queues = [list(items) for items in flows]
    while any(queues):
        expected.extend(queue.pop(0) for queue in queues if queue)
    assert flow_of(interleave([batch_of(items) for items in flows])) == expected


@given(events, st.sets(st.integers(0, 11)))
def test_take_gives_the_records_at_the_indices(items: list[Any], chosen: set[int]) -> None:
    batch = batch_of(items)
    indices = sorted(index for index in chosen if index < len(batch))
    records = [item for item in items if isinstance(item, tuple)]
    assert flow_of(batch.take(indices)) == [records[index] for index in indices]


def test_a_batch_without_keys_has_messages_without_keys() -> None:
    batch = Batch(None, ["a"], range(1))
    assert list(batch.messages()) == [DataMessage(NoKey, "a", 0)]
