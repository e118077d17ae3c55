"""The commands and reports of ticks, which must be small with many workers and stages."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import NoKey, StreamProvider
from malflow.engine.parts.dealing import deal
from malflow.engine.worker import Worker
from malflow.event_time.tick import Tick
from malflow.runtime.spark.protocol import TickCommand
from malflow.runtime.spark.tasks.records import (
    OutgoingRecords,
    RecordCounts,
    Row,
    RowKind,
    chunks_of,
    frames_of,
    read_frames,
    summed,
)
from malflow.runtime.transport import chunks
from malflow.runtime.transport.pickling import dump_columns
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from tests.kit.driving import compiled

WORKERS, STAGES = 1_000, 4

places = st.sets(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 70))).map(sorted)
ticks = st.integers(-1, 5)


@given(st.lists(st.lists(ticks, max_size=9), max_size=3), places, places, st.booleans())
def test_a_command_arrives_as_it_was_sent(
    last: list[list[int]], finished: list[tuple[str, int]], quiet: list[tuple[str, int]], final: bool
) -> None:
    command = TickCommand(7, last, finished=finished, quiet=quiet, lifts="x" * 5_000 if final else "", final=final)
    arrived = TickCommand.loads(command.dumps())
    assert arrived.dumps() == command.dumps()
    assert (arrived.last, arrived.finished, arrived.quiet, arrived.lifts) == (last, finished, quiet, command.lifts)


def test_a_command_is_small_however_many_workers_there_are() -> None:
    last = [[40 if worker % 50 == 7 else 99 for worker in range(WORKERS)] for _ in range(STAGES)]
    every = frozenset(("source", worker) for worker in range(WORKERS) if worker % 3)
    tick = Tick(100, finished=every, quiet=every, passed=timedelta(seconds=1))
    assert len(TickCommand.of(tick, last).dumps()) < 2_048


@given(
    st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 5)), st.integers(1, 9)),
    st.data(),
)
def test_sums_of_senders_and_receivers_are_equal_only_if_all_arrived(
    counts: dict[tuple[int, int, int], int], data: st.DataObject
) -> None:
    sent = [(*places, n) for places, n in counts.items()]
    assert summed(data.draw(st.permutations(sent))) == summed(sent)
    if sent:
        at = data.draw(st.integers(0, len(sent) - 1))
        *places, n = sent[at]
        assert summed([*sent[:at], *sent[at + 1 :]]) != summed(sent)
        assert summed([*sent[:at], (places[0], places[1], places[2], n + 1), *sent[at + 1 :]]) != summed(sent)


def test_the_counts_in_a_report_have_one_size() -> None:
    few = RecordCounts({}, {(0, target): 5 for target in range(2)})
    many = RecordCounts({}, {(0, target): 5 for target in range(WORKERS)})
    assert len(pickle.dumps(summed(many.sent_by(3)))) <= len(pickle.dumps(summed(few.sent_by(3)))) + 8


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 400_000)), max_size=9))
def test_small_rows_for_a_worker_share_a_frame(sizes: list[tuple[int, int]]) -> None:
    rows = [Row(target, RowKind.CHANNEL, 0, at, bytes(size), [at]) for at, (target, size) in enumerate(sizes)]
    frames = [*frames_of(rows)]
    read = [(target, [*read_frames([frame])]) for target, frame in frames]
    assert all(row.worker == target for target, them in read for row in them)
    assert sorted(row for _, them in read for row in them) == sorted(rows)
    assert all(len(them) == 1 or sum(len(row.blob) for row in them) < 300_000 for _, them in read)
    for target in range(3):  # in their order, also across frames
        assert [row for to, them in read if to == target for row in them] == [it for it in rows if it.worker == target]
    assert len([*frames_of([Row(0, RowKind.CHANNEL, 0, at, b"x") for at in range(1_000)])]) == 1


def test_epochs_for_workers_without_records_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([1, 2, 3]))
        on_time, _ = numbers.generate_epochs("epochs", lambda msg, _: msg.timestamp)
        keyed = on_time.key_distribute("key", lambda msg: 0)
        keyed.inspect_frontier("each", lambda epoch, _: None).sink("out", VecSink())

    program, packed = compiled(build), list[bytes]()

    def dump(columns: Any, operator: str) -> bytes:
        packed.append(dump_columns(columns, operator))
        return packed[-1]

    monkeypatch.setattr(chunks, "dump_columns", dump)
    worker = Worker(program, 0, 0, parallelism=WORKERS, parts=deal(program, {"numbers": [NoKey]}, WORKERS))
    worker.open()
    outgoing = OutgoingRecords(worker, WORKERS, debug=False)
    outgoing.add(worker.run({}, Tick(limit=3)))
    rows = [*outgoing.rows()]
    assert len(packed) <= 3, "those before and after the target of the records, and for it"
    assert {row.worker for row in rows} == set(range(WORKERS))
    batches = [(row.worker, chunk.batch()) for row in rows for chunk in chunks_of([row.blob])]
    assert [list(batch.values) for worker, batch in batches if len(batch)] == [[1, 2, 3]]
    assert {tuple(epoch for _, epoch in batch.epochs) for _, batch in batches} == {(0, 1, 2)}
    assert sum(outgoing.sent.values()) == 3
