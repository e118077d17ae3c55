"""The sinks of a run: the positions that a snapshot must have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from malflow import StreamProvider
from malflow.engine.sinks import RunSinks
from malflow.operators.failures.dead_letters import REFUSED, UNWRITTEN
from malflow.sinks import ResumableSinkImpl, StatelessSink
from malflow.sources import SingleIteratorSource
from malflow.states.keyed import StateDelta
from tests.kit.driving import compiled
from tests.kit.ledger import LedgerSink


class Placed(ResumableSinkImpl[Any, Any, Any, Any]):
    """A sink whose position is what a test sets."""

    def __init__(self) -> None:
        self.position: int | None = None

    def sink(self, msg: Any) -> None:
        """Drop a record."""

    def snapshot(self) -> int | None:
        return self.position

    def restore(self, position: int | None) -> None:
        self.position = position


def sinks_of(*impls: Any) -> RunSinks:
    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("numbers", SingleIteratorSource([1]))
        for number, impl in enumerate(impls):
            stream.sink(f"sink {number}", StatelessSink(impl))

    return RunSinks(compiled(build).sinks)


def positions_in(deltas: list[StateDelta]) -> dict[str, Any]:
    return {name: delta.changed["position"] for _, name, delta, _ in deltas}


def test_a_snapshot_holds_the_positions_that_have_changed() -> None:
    first, second = Placed(), Placed()
    sinks = sinks_of(first, second)
    assert not sinks.has_unkept()
    first.position = 1
    assert sinks.has_unkept()
    assert positions_in(sinks.deltas()) == {"sink 0": 1}
    assert not sinks.has_unkept()
    second.position = 2
    assert positions_in(sinks.deltas()) == {"sink 1": 2}
    assert positions_in(sinks.deltas()) == {}
    assert positions_in(sinks.deltas(whole=True)) == {"sink 0": 1, "sink 1": 2}


def test_the_snapshot_after_a_lost_one_holds_all_positions() -> None:
    first, second = Placed(), Placed()
    sinks = sinks_of(first, second)
    first.position = second.position = 1
    sinks.deltas()
    first.position = 2
    sinks.deltas()
    sinks.note_lost()
    assert positions_in(sinks.deltas()) == {"sink 0": 2, "sink 1": 1}


def test_a_position_that_returns_is_written_again() -> None:
    sink = Placed()
    sinks = sinks_of(sink)
    sink.position = 1
    assert positions_in(sinks.deltas()) == {"sink 0": 1}
    sink.position = None
    assert positions_in(sinks.deltas(whole=True)) == {}
    sink.position = 1
    assert positions_in(sinks.deltas()) == {"sink 0": 1}


def test_restored_positions_are_those_of_the_snapshot() -> None:
    first, second = Placed(), Placed()
    sinks = sinks_of(first, second)
    letters = {f"sink {number}/{role}" for number in (0, 1) for role in (UNWRITTEN, REFUSED)}
    assert sinks.names == {"sink 0", "sink 1", *letters}
    sinks.restore({"sink 0": {0: {"position": 7}}, "gone": {0: {"position": 8}}})
    assert (first.position, second.position) == (7, None)
    assert sinks.captured == {"sink 0": 7}
    assert not sinks.has_unkept()


def test_committed_transactions_are_added_to_the_snapshot(tmp_path: Path) -> None:
    ledger = LedgerSink(tmp_path / "outside.db")
    sinks = sinks_of(ledger)
    sinks.begin("job", 1, origin="the run starts", accept_duplicates=False)
    assert sinks.transaction_deltas() == []
    ledger.rows.append("a record")
    ((name, (_, last, pending, _)),) = positions_in(sinks.deltas()).items()
    assert (name, last, len(pending)) == ("sink 0", 1, 1)
    sinks.commit(sinks.captured)
    assert positions_in(sinks.transaction_deltas()) == {"sink 0": ("sink 0", 1, (), False)}
    assert sinks.transaction_deltas() == []
