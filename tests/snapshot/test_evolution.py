"""States of a program that has changed: named on both sides, and dropped only on request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from malflow import GraphError, SingleThreadRuntime, StreamProvider, agg
from malflow.errors import SnapshotError
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, snapshots
from malflow.snapshot.persistence import RestoredState, RestoreOptions
from malflow.sources import StatefulSource
from malflow.states.keyed import Delta, StateDelta
from malflow.states.kinds import StateKind, StateSpec
from malflow.testing import END, ScriptedSource
from malflow.windows import tumbling
from tests.kit.backends import in_memory, kept_states
from tests.kit.jobs import Job, StoreBackend
from tests.kit.memory_store import HookedStore

BY_KEY = "malflow.partitioners.rendezvous_select"


def spec(name: str, kind: StateKind = StateKind.STATEFUL_MAP, version: int = 1) -> StateSpec:
    return StateSpec(name, kind, version, BY_KEY)


@pytest.fixture
def store() -> HookedStore:
    """Write a snapshot of three operators: sum and count have state, idle has none, and time has a frontier's."""
    store = HookedStore()
    backend = StoreBackend(store)
    specs = [spec("sum"), spec("count", StateKind.STATEFUL_OP), spec("idle"), spec("time", StateKind.FRONTIER)]
    session, _ = backend.open(specs, RestoreOptions())
    states = {"sum": {"a": 1}, "count": {"a": 1, "b": 2}, "idle": {}, "time": {"merged": 3}}
    deltas = [StateDelta(0, name, Delta(state, whole=True), len(state)) for name, state in states.items()]
    session.commit(7, 1, specs, deltas).result()
    return store


def restored(store: HookedStore, *specs: StateSpec, **start: Any) -> RestoredState:
    """Open a copy with another program."""
    copy = HookedStore()
    copy.objects = dict(store.objects)
    found = StoreBackend(copy).open(specs, RestoreOptions(**start))[1]
    assert found is not None
    return found


def states_in(found: RestoredState) -> dict[str, dict[Any, Any]]:
    return {name: by_worker[0] for name, by_worker in found.states.items() if by_worker.get(0)}


def refusal(store: HookedStore, *specs: StateSpec, **start: Any) -> str:
    before = dict(store.objects)
    with pytest.raises(SnapshotError) as raised:
        StoreBackend(store).open(specs, RestoreOptions(**start))
    assert store.objects == before, "nothing was claimed"
    return str(raised.value)


@pytest.mark.fault("G3")
def test_an_operator_that_was_added_begins_empty(store: HookedStore) -> None:
    found = restored(store, spec("sum"), spec("count", StateKind.STATEFUL_OP), spec("new"))
    assert states_in(found) == {"sum": {"a": 1}, "count": {"a": 1, "b": 2}}


@pytest.mark.fault("G2")
def test_removed_operator_is_refused_with_both_ways_out(store: HookedStore) -> None:
    assert refusal(store, spec("sum"), spec("newer", StateKind.TTL_MAP), spec("new", StateKind.STATEFUL_OP)) == (
        "snapshot 2 has states without an operator in the program: 'count' (stateful_op, 2 keys); operators without a "
        "state in the snapshot: 'newer' (ttl_map), 'new' (stateful_op); pass renamed={'count': 'new'} if an operator "
        "was renamed, or allow_dropped_state=['count'] if its state may be dropped"
    )


@pytest.mark.parametrize("name", ["a-distribute", "\n(a + b)"])
def test_only_frontiers_had_other_names(name: str) -> None:
    store = HookedStore()
    Job(StoreBackend(store), spec(name)).save({"a": 1}).result()
    found = restored(store, spec(name))
    assert states_in(found) == {name: {"a": 1}}


@pytest.mark.fault("G2")
def test_state_is_dropped_where_that_is_said_by_name(store: HookedStore) -> None:
    found = restored(store, spec("sum"), allow_dropped_state=["count"])
    assert states_in(found) == {"sum": {"a": 1}}
    assert "'count'" in refusal(store, spec("sum"), allow_dropped_state=["sum"])


def test_an_operator_without_keys_or_with_nothing_but_time_may_go(store: HookedStore) -> None:
    assert set(states_in(restored(store, spec("sum"), spec("count", StateKind.STATEFUL_OP)))) == {"sum", "count"}


@pytest.mark.fault("G1")
def test_state_follows_a_new_name(store: HookedStore) -> None:
    found = restored(store, spec("sum"), spec("tally", StateKind.STATEFUL_OP), renamed={"count": "tally"})
    assert states_in(found) == {"sum": {"a": 1}, "tally": {"a": 1, "b": 2}}


@pytest.mark.fault("G4")
def test_an_operator_of_another_kind_under_the_same_name_is_refused(store: HookedStore) -> None:
    assert refusal(store, spec("sum", StateKind.TTL_MAP), spec("count", StateKind.STATEFUL_OP)) == (
        "operator 'sum' is now a ttl_map, but in snapshot 2 it is a stateful_map with 1 key; rename the new operator, "
        "and pass allow_dropped_state=['sum'] if the old state may be dropped"
    )
    found = restored(
        store, spec("sum", StateKind.TTL_MAP), spec("count", StateKind.STATEFUL_OP), allow_dropped_state=["sum"]
    )
    assert states_in(found) == {"count": {"a": 1, "b": 2}}


@pytest.mark.parametrize(
    ("renamed", "told"),
    [
        ({"count": "tallly"}, "the program has no state of that name; did you mean 'tally'?"),
        ({"sum": "tally"}, "but the program still has 'sum'"),
        (
            {"count": "sum"},
            "but the snapshot has states of both; pass allow_dropped_state=['sum'] if the state of the old 'sum'",
        ),
        ({"count": "tally", "idle": "tally"}, "renamed= maps two operators to 'tally'"),
    ],
)
def test_a_name_that_can_not_be_is_refused(store: HookedStore, renamed: dict[str, str], told: str) -> None:
    assert told in refusal(store, spec("sum"), spec("tally", StateKind.STATEFUL_OP), renamed=renamed)


def test_a_name_that_no_snapshot_has_any_more_may_stay_in_the_list(store: HookedStore) -> None:
    found = restored(store, spec("sum"), spec("count", StateKind.STATEFUL_OP), renamed={"old": "sum"})
    assert states_in(found)["sum"] == {"a": 1}


def test_renamed_needs_saying_only_once(store: HookedStore) -> None:
    specs = [spec("sum"), spec("tally", StateKind.STATEFUL_OP)]
    session, _ = StoreBackend(store).open(specs, RestoreOptions(renamed={"count": "tally"}))
    assert session.needs_full_snapshot(1)
    deltas = [
        StateDelta(0, "sum", Delta({"a": 1}, whole=True), 1),
        StateDelta(0, "tally", Delta({"b": 9}, whole=True), 1),
    ]
    session.commit(8, 1, specs, deltas).result()
    assert states_in(restored(store, *specs)) == {"sum": {"a": 1}, "tally": {"b": 9}}


@pytest.mark.fault("D9")
def test_another_program_under_the_same_job_is_refused(store: HookedStore) -> None:
    told = refusal(store, spec("quite", StateKind.TTL_MAP), spec("different", StateKind.STATEFUL_OP))
    assert "'sum' (stateful_map, 1 key), 'count' (stateful_op, 2 keys)" in told
    assert "'quite' (ttl_map), 'different' (stateful_op)" in told


@pytest.mark.fault("G4")
def test_another_codec_is_refused_until_somebody_begins_with_nothing(store: HookedStore) -> None:
    class Text:
        name, executes = "text", False

        def dumps(self, value: Any) -> bytes:
            return json.dumps([list(value.items())] if isinstance(value, dict) else value).encode()

        def loads(self, data: bytes) -> Any:
            (items,) = json.loads(data)
            return dict(items)

    with pytest.raises(SnapshotError, match=r"codec 'pickle', but the program uses codec 'text'; pass codec='pickle'"):
        Job(StoreBackend(store, codec=Text()), allow_dropped_state=["count"])
    begun = Job(StoreBackend(store, codec=Text()), restore=None)
    begun.save({"a": 5}).result()
    assert Job(StoreBackend(store, codec=Text())).state == {"a": 5}


def test_the_version_of_a_state_comes_back_with_it() -> None:
    store = HookedStore()
    Job(StoreBackend(store), spec("sum", version=3)).save({"a": 1}).result()
    found = restored(store, spec("sum", version=4))
    assert found.versions == {"sum": 3}
    assert found.placements == {"sum": BY_KEY}


@pytest.mark.fault("G7")
def test_a_state_whose_class_is_gone_is_told_with_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HookedStore()
    monkeypatch.setitem(globals(), "Gone", type("Gone", (), {"__module__": __name__}))
    Job(StoreBackend(store)).save({"a": globals()["Gone"]()}).result()
    monkeypatch.delitem(globals(), "Gone")
    told = r"the state of operator 'sum' in 'd/.*' can't be read: AttributeError: .*must be importable from the same"
    with pytest.raises(SnapshotError, match=told):
        Job(StoreBackend(store))


# Whole dataflows


def add(_key: Any, value: int, total: int) -> tuple[int, int]:
    return total + value, total + value


def run(backend: FsspecBackend, source: ScriptedSource, *names: str, extra: bool = False, **options: Any) -> list[Any]:
    """Sum a source in operators of these names, one after the other."""
    seen: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> object:
        stream = provider.new_stream().source("numbers", StatefulSource(source))
        if extra:
            stream = stream.map("stateless", lambda value: value).filter("everything", lambda _: True)
        keyed: Any = stream.key_distribute("all", lambda _: "all")
        for name in names:
            keyed = keyed.stateful_map(name, add, default=int)
        return keyed.sink("seen", StatelessSink(seen))

    SingleThreadRuntime(build, backend, **options).execute()
    return seen.values


@pytest.fixture
def source() -> ScriptedSource:
    return ScriptedSource([1, 2, END, 3, END, 4])


@pytest.mark.fault("G1")
def test_a_dataflow_goes_on_under_new_names(source: ScriptedSource) -> None:
    backend = in_memory()
    assert run(backend, source, "sum") == [1, 3]
    with pytest.raises(SnapshotError, match=r"pass renamed=\{'sum': 'total'\} if an operator was renamed"):
        run(backend, source, "total")
    assert run(backend, source, "total", renamed={"sum": "total"}) == [6]
    assert run(backend, source, "total") == [10]
    assert kept_states(backend, "total") == {"all": 10}


def test_advice_names_the_operator_of_a_hidden_state() -> None:
    backend, source = in_memory(), ScriptedSource([1, END])

    def count(name: str, **options: Any) -> None:
        def build(provider: StreamProvider) -> None:
            timed = (
                provider.new_stream()
                .source("numbers", StatefulSource(source))
                .event_time("at", int_of, out_of_orderness=0)
            )
            counts = timed.key_distribute("all", lambda _: 7).window(tumbling(2)).aggregate(name, agg.count())
            counts.sink("seen", VecSink())

        SingleThreadRuntime(build, backend, **options).execute()

    count("old")  # its window has closed: nothing is left but its time
    with pytest.raises(SnapshotError, match=r"pass renamed=\{'old': 'new'\} if .* or allow_dropped_state=\['old'\]"):
        count("new")
    count("new", renamed={"old": "new"})


def int_of(msg: Any) -> int:
    return int(msg.value)


def test_a_dataflow_may_lose_and_win_operators(source: ScriptedSource) -> None:
    backend = in_memory()
    run(backend, source, "sum", "sum of sums")
    assert run(backend, source, "sum", allow_dropped_state=["sum of sums"]) == [6]
    assert run(backend, source, "sum", "sum of sums") == [10], "the new one begins with nothing"
    assert kept_states(backend, "sum of sums") == {"all": 10}


@pytest.mark.fault("G5")
def test_stateless_operators_come_and_go(source: ScriptedSource) -> None:
    backend = in_memory()
    run(backend, source, "sum", extra=True)
    assert run(backend, source, "sum") == [6]
    assert run(backend, source, "sum", extra=True) == [10]


@pytest.mark.fault("G12")
def test_two_operators_of_one_name_are_refused_before_anything_runs(source: ScriptedSource) -> None:
    backend = in_memory()
    with pytest.raises(GraphError, match=r"'sum'"):
        run(backend, source, "sum", "sum")
    assert list(snapshots(backend)) == []


@pytest.mark.fault("F6")
def test_a_source_of_another_name_is_a_source_whose_position_has_no_place(source: ScriptedSource) -> None:
    backend = in_memory()
    run(backend, source, "sum")

    def build(provider: StreamProvider) -> object:
        keyed = provider.new_stream().source("figures", StatefulSource(source)).key_distribute("all", lambda _: "all")
        return keyed.stateful_map("sum", add, default=int).sink("seen", StatelessSink(VecSink()))

    with pytest.raises(SnapshotError, match=r"'numbers' \(source, 1 key\).*'figures' \(source\)"):
        SingleThreadRuntime(build, backend).execute()
    SingleThreadRuntime(build, backend, renamed={"numbers": "figures"}).execute()
    assert kept_states(backend, "sum") == {"all": 6}
