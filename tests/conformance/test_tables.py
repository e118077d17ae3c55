"""Tables behave the same on every runtime, in snapshots too."""

from __future__ import annotations

from collections import Counter
from typing import Any

from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, read_state
from malflow.sources import StatefulSource
from malflow.testing import END, ScriptedSource
from tests.tables import model
from tests.tables.running import changes_of, flow_of, script_of

GIVEN = [(n * 5 % 2, "abc"[n % 3], n * 7 % 11 + n, (None, 1, 2, 2)[n * 3 % 7 % 4]) for n in range(60)]
LEFT, RIGHT = ([record[1:] for record in GIVEN if record[0] == side] for side in (0, 1))


def pair(value: Any, row: Any) -> Any:
    return value, row


def flow(source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> Any:
    """Return a dataflow with all that can be made of two tables, but what depends on the order between streams."""

    def add(left: Any, right: Any) -> Any:
        records, rows = left.to_table("records"), right.to_table("rows", ttl=6)
        made = {
            "changes": records.changes(),
            "expiring": rows.changes(),
            "odd": records.filter("odd", lambda row: row % 2).map("ten", lambda row: row * 10).changes(),
            "grouped": records.grouped("parity", lambda row: row % 2),
            "in time": left.join_table("in time", right.to_table("versions"), pair),
            "both": records.join("both", right.to_table("others"), pair, how="outer").changes(),
            "own": left.join_table("own", left, pair, at="arrival").map("size", lambda pair: 1),
        }
        for name, stream in made.items():
            stream.sink(f"{name} results", sinks.setdefault(name, VecSink()))
        return left

    return flow_of(source, add, VecSink(), bound=11)


def by_key(changes: Any) -> Any:
    """Return changes in their order, by key."""
    return {key: [it for it in changes if it[0] == key] for key in "abc"}


def test_tables(any_parallelism: Any) -> None:
    sinks: dict[str, VecSink[Any, Any, Any]] = {}
    any_parallelism(flow(StatefulSource(ScriptedSource(script_of(GIVEN))), sinks)).execute()
    changes = model.changed(LEFT)
    assert by_key(changes_of(sinks["changes"])) == by_key(changes)
    assert by_key(changes_of(sinks["expiring"])) == by_key(model.changed_rows(model.on_time(RIGHT, 11), 6))
    tens = [(key, at, 10 if row == 1 else None) for key, at, row in LEFT]
    assert by_key(changes_of(sinks["odd"])) == by_key(model.changed(tens))
    moves: Counter[Any] = Counter()
    for message in sinks["grouped"]:
        moves[message.key] += (message.value.after is not None) - (message.value.before is not None)
    assert +moves == model.counted(model.folded(changes), lambda row: row % 2)
    found = Counter((it.key, it.value, it.timestamp) for it in sinks["in time"])
    assert found == model.joined_in_time(LEFT, RIGHT, "left")
    tables = model.folded(changes), model.folded(model.changed(RIGHT))
    assert model.folded(changes_of(sinks["both"])) == model.joined_tables(*tables, "outer")
    assert len(sinks["own"]) == len(LEFT)


def test_tables_continue_from_snapshots(runtime: Any, store: FsspecBackend) -> None:
    script = script_of(GIVEN)
    source = StatefulSource(ScriptedSource([*script[:30], END, *script[30:]]))
    sinks: list[dict[str, VecSink[Any, Any, Any]]] = [{}, {}]
    for each in sinks:
        runtime(flow(source, each), store, at_end="keep").execute()
    sent = [changes_of([*sinks[0][name], *sinks[1][name]]) for name in ("changes", "expiring", "both")]
    assert by_key(sent[0]) == by_key(model.changed(LEFT))
    assert by_key(sent[1]) == by_key(model.changed_rows(model.on_time(RIGHT, 11), 6))
    assert dict(read_state(store, "records")) == model.folded(sent[0])
    assert dict(read_state(store, "rows")) == model.folded(sent[1])
    tables = model.folded(sent[0]), model.folded(model.changed(RIGHT))
    assert model.folded(sent[2]) == model.joined_tables(*tables, "outer")
