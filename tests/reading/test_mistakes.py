"""Reading states that are missing, damaged, deleted meanwhile, or of another kind: errors, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from malflow.errors import GraphError, SnapshotCorrupt, SnapshotError, SnapshotIncomplete
from malflow.snapshot import FsspecBackend, MsgpackCodec, copy_snapshot, diff_state, read_state
from malflow.states.kinds import StateKind
from tests.golden.test_golden import FOLDER
from tests.golden.write import JOBS, backend_of
from tests.kit.evolving import module
from tests.kit.jobs import Doing, StoreBackend, flipped, manifest_key
from tests.kit.memory_store import HookedStore, MemoryStore
from tests.reading.keeping import Keeper

KEY, OTHER = "a signing key of the tests", "quite another signing key"

READERS: dict[str, Callable[[FsspecBackend], Any]] = {
    "all": lambda backend: list(read_state(backend, "sum", at=2)),
    "one": lambda backend: read_state(backend, "sum", key=1, at=2),
    "differences": lambda backend: list(diff_state(backend, "sum", 2, 2)),
    "copy": lambda backend: copy_snapshot(backend, 2, to=StoreBackend(MemoryStore(), signing_key=KEY)),
}
each_reader = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)


def keeper(store: Any, **options: Any) -> Keeper:
    """Take one snapshot of a few keys on two workers."""
    made = Keeper(StoreBackend(store, **{"signing_key": KEY, "retain": 1, "growth": 1e9, **options}), 2)
    assert made.save({key: str(key) for key in range(10)}) == 2
    return made


@pytest.mark.fault("K2")
@each_reader
def test_a_snapshot_deleted_while_it_is_read_is_named(reader: Callable[[FsspecBackend], Any]) -> None:
    store = HookedStore()
    job = keeper(store)
    backend = StoreBackend(store, signing_key=KEY)

    def take() -> None:
        for workers in (3, 2, 3, 2, 3):  # each needs a new base
            job.rescale(workers)

    meanwhile = Doing("get", "d/", take)
    store.before.append(meanwhile)
    with pytest.raises(SnapshotIncomplete, match="snapshot 2 of job 'default' was deleted while it was read"):
        reader(backend)
    assert meanwhile.fired == 1


@pytest.mark.fault("K2")
def test_a_manifest_deleted_after_it_was_listed_is_looked_up_again() -> None:
    store = HookedStore()
    job = keeper(store)
    meanwhile = Doing("get", "m/", lambda: [job.save({0: str(number)}) for number in range(9)])
    store.before.append(meanwhile)
    assert read_state(StoreBackend(store, signing_key=KEY), "sum", key=0) == "8"
    assert meanwhile.fired == 1


@pytest.mark.fault("K3")
@each_reader
def test_nothing_is_claimed_locked_or_written_by_reading(reader: Callable[[FsspecBackend], Any]) -> None:
    store = HookedStore()
    job = keeper(store)
    store.clear_calls()
    before = dict(store.objects)
    reader(StoreBackend(store, signing_key=KEY))
    assert {operation for operation, _ in store.calls} == {"get", "list"}
    assert store.objects == before
    assert job.save({1: "the run continues"}) == 3


@pytest.mark.fault("K4")
@pytest.mark.damages_snapshots("its only one")
@each_reader
@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_damage_is_found_before_anything_is_loaded(reader: Callable[[FsspecBackend], Any], damage: str) -> None:
    store = MemoryStore()
    keeper(store)
    (name,) = (key for key in store.objects if key.startswith("d/"))
    if damage == "missing":
        del store.objects[name]
    else:
        store.objects[name] = flipped(store.objects[name], -20)
    with pytest.raises(SnapshotCorrupt, match=name):
        reader(StoreBackend(store, signing_key=KEY))


@pytest.mark.fault("B13")
@pytest.mark.damages_snapshots("its manifest")
def test_states_that_do_not_add_up_are_an_error() -> None:
    store = MemoryStore()
    job = keeper(store)
    manifest_log = job.backend.manifest_log()
    assert manifest_log.find()
    manifest = manifest_log.manifest(2)
    forged = replace(manifest, operators=(replace(manifest.operators[0], keys=11),))
    store.objects[manifest_key(2)] = forged.to_bytes(manifest_log.authenticator)
    for read in (READERS["all"], READERS["differences"]):
        with pytest.raises(SnapshotCorrupt, match="operator 'sum' has 10 keys of 11"):
            read(StoreBackend(store, signing_key=KEY))


@pytest.mark.fault("K4")
@each_reader
def test_a_snapshot_of_another_key_or_none_is_not_loaded(reader: Callable[[FsspecBackend], Any]) -> None:
    signed, unsigned = MemoryStore(), MemoryStore()
    keeper(signed)
    keeper(unsigned, signing_key=None, allow_unsigned_pickle=True)
    for store, keys, said in [
        (signed, OTHER, "does not match its content under any of the signing keys"),
        (signed, None, "it is signed, but no signing key is set"),
        (unsigned, KEY, "it is not signed"),
    ]:
        with pytest.raises(SnapshotCorrupt, match=said) as raised:
            reader(StoreBackend(store, signing_key=keys))
        assert KEY not in str(raised.value)
        assert OTHER not in str(raised.value)


@pytest.mark.fault("K4")
@pytest.mark.damages_snapshots("a newer malflow wrote it")
@each_reader
def test_a_newer_format_is_named(reader: Callable[[FsspecBackend], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr("malflow.snapshot.protocol.manifest._PLAIN_FORMAT", 99)
    keeper(store)
    assert json.loads(store.objects[manifest_key(2)])["format"] == 99
    with pytest.raises(SnapshotError, match="in format 99; this version reads formats up to 3; upgrade malflow"):
        reader(StoreBackend(store, signing_key=KEY))


@pytest.mark.fault("K4")
@each_reader
def test_a_snapshot_that_is_gone_is_named_with_those_that_are_there(reader: Callable[[FsspecBackend], Any]) -> None:
    store = MemoryStore()
    job = keeper(store)
    for number in range(5):
        job.save({number: "later"})
    with pytest.raises(SnapshotError, match=r"job 'default' has no snapshot with the id 2; it has \[5, 6, 7\]"):
        reader(StoreBackend(store, signing_key=KEY))
    with pytest.raises(SnapshotError, match=r"FsspecBackend\(.*\) has no snapshots: no run has begun there"):
        reader(StoreBackend(MemoryStore()))


@pytest.mark.fault("K4")
def test_a_job_that_began_with_empty_state_has_no_latest_snapshot() -> None:
    store = MemoryStore()
    Keeper(StoreBackend(store))
    with pytest.raises(SnapshotError, match="no snapshot since a run began with empty state at 2026"):
        read_state(StoreBackend(store), "sum")


@pytest.mark.fault("K5")
def test_an_operator_that_is_not_there_is_told_its_near_name() -> None:
    job = keeper(MemoryStore())
    with pytest.raises(SnapshotError, match=r"no state of an operator 'summ'; did you mean 'sum'.*map and filter"):
        read_state(job.backend, "summ")
    with pytest.raises(SnapshotError, match=r"no state of an operator 'xyz'; it has states of 'sum'; operators"):
        diff_state(job.backend, "xyz", 2, 2)
    with pytest.raises(GraphError, match="read from an FsspecBackend; got 'folder'"):
        read_state("folder", "sum")  # type: ignore[call-overload] # the mistake
    with pytest.raises(GraphError, match="at needs 'latest', the id of a snapshot, or a datetime; got 'newest'"):
        read_state(job.backend, "sum", at="newest")  # type: ignore[call-overload] # the mistake


@pytest.mark.fault("K5")
@pytest.mark.parametrize("key", [None, [1], float("nan"), object()])
def test_a_key_without_a_stable_hash_is_refused(key: Any) -> None:
    job = keeper(MemoryStore())
    with pytest.raises(GraphError, match="operator 'sum' can't be read by key: "):
        read_state(job.backend, "sum", key=key)


def test_a_key_without_a_state_is_an_error_or_the_default() -> None:
    job = keeper(MemoryStore())
    with pytest.raises(SnapshotError, match="operator 'sum' has no state for key 77 in snapshot 2; pass default="):
        read_state(job.backend, "sum", key=77)
    assert read_state(job.backend, "sum", key=77, default=None) is None


@pytest.mark.fault("K5")
@pytest.mark.parametrize(
    ("operator", "key", "said"),
    [
        (
            "days",
            "s1",
            r"of kind 'window', whose keys are \(pane, key\); got key 's1'; malflow.reading.read_win",
        ),
        ("days", ("s1", 1), r"keys are \(pane, key\)"),
        (
            "newest",
            "s1",
            r"'join', whose keys are \(pane, key\); got key 's1'; left panes are even, .* to_table\(\) of",
        ),
        ("distinct", (1, "s1"), r"has states of kind 'distinct', whose keys are \(pane, \(key, id\)\)"),
        ("days/epoch", "epoch", r"of kind 'epochs', whose keys are \(worker, name\)"),
    ],
)
def test_a_key_of_another_form_is_told_the_form(operator: str, key: Any, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        read_state(backend_of(JOBS[1], FOLDER / "format-3"), operator, key=key)


@pytest.mark.fault("K6")
def test_a_key_is_found_whatever_placed_it() -> None:
    job = Keeper(StoreBackend(MemoryStore()), 3, "gone.select", lambda key, workers: (key + 1) % len(workers))
    job.save({key: key for key in range(9)})
    assert [read_state(job.backend, "sum", key=key) for key in range(9)] == list(range(9))


def test_a_key_that_several_workers_have_is_not_chosen_among_them() -> None:
    job = Keeper(StoreBackend(MemoryStore()), 3, None)
    job.save({"here": 1}, worker=0)
    job.save({"both": 1, "here": 2}, worker=0)
    last = job.save({"both": 2}, worker=2)
    assert list(read_state(job.backend, "sum")) == [("here", 2), ("both", 1), ("both", 2)]
    assert read_state(job.backend, "sum", key="here") == 2
    with pytest.raises(SnapshotError, match=r"states for key 'both' on workers 0, 2, as it was kept under key_local"):
        read_state(job.backend, "sum", key="both")
    job = Keeper(job.backend, 2, None)
    with pytest.raises(SnapshotError, match=r"key_local\(\) by 3 workers in snapshot 4 and by 2 in snapshot 6"):
        diff_state(job.backend, "sum", last, job.save({"here": 1}, worker=1))


def test_states_of_two_kinds_are_not_compared() -> None:
    store = MemoryStore()
    one = keeper(store).save({1: "one"})
    backend = StoreBackend(store, signing_key=KEY)
    golden = backend_of(JOBS[0], FOLDER / "format-3")
    assert golden.codec.name == backend.codec.name
    other = Keeper(_forgetful(backend), 2, kind=StateKind.TTL_MAP)
    with pytest.raises(SnapshotError, match="'sum' is a stateful_map in snapshot 3 and a ttl_map in snapshot 5"):
        diff_state(backend, "sum", one, other.save({1: "two"}))


def _forgetful(backend: FsspecBackend) -> FsspecBackend:
    """Return the backend; its next run starts without state."""
    real = backend.open
    backend.open = lambda states, start: real(states, replace(start, restore=None))  # type: ignore[method-assign]
    return backend


@pytest.mark.fault("K6")
def test_a_record_whose_class_is_gone_is_read_as_its_fields() -> None:
    made = module("@dataclass\nclass Total:\n    units: int\n    price: float\n")
    job = keeper(MemoryStore())
    job.save({1: made.Total(2, 3.5)})
    module("")
    found = read_state(job.backend, "sum", key=1)
    assert dict(found) == {"units": 2, "price": 3.5}
    assert found.units == 2


def test_another_codec_is_named() -> None:
    store = MemoryStore()
    keeper(store)
    for read in (READERS["all"], READERS["one"], READERS["differences"]):
        with pytest.raises(SnapshotError, match="with codec 'pickle', but the backend has codec 'msgpack'; pass"):
            read(StoreBackend(store, signing_key=KEY, codec=MsgpackCodec()))


class Counted:
    """A state of which the living are counted."""

    living = most = 0

    def __init__(self) -> None:
        self._count()

    def __setstate__(self, _state: Any) -> None:
        self._count()

    def __getstate__(self) -> Any:
        return 1

    def __del__(self) -> None:
        Counted.living -= 1

    @staticmethod
    def _count() -> None:
        Counted.living += 1
        Counted.most = max(Counted.most, Counted.living)


def test_the_states_of_one_worker_at_a_time_are_in_memory() -> None:
    job = Keeper(StoreBackend(MemoryStore()), 8, place=lambda key, workers: key % len(workers))
    job.save({key: Counted() for key in range(800)})
    job = Keeper(StoreBackend(job.backend._given), 8)  # type: ignore[attr-defined]
    Counted.living = Counted.most = 0
    assert sum(1 for _ in read_state(job.backend, "sum")) == 800
    assert Counted.most <= 100 + 2
