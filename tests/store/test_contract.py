"""The contract of every store."""

from __future__ import annotations

import os
import threading
import warnings
from array import array
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from malflow.errors import StoreError
from malflow.store.contract import KeyExists, KeyMissing, Store, is_key
from tests.store.conftest import S3_PLACES, Place, run_python

pytestmark = pytest.mark.slow

LARGE = array("I", range(750_000)).tobytes() + b"!"
BODIES = {
    "empty": b"",
    "zero": b"\0",
    "every_byte": bytes(range(256)),
    "lines": b"\r\n\n\x1a" * 9,
    "gzip": b"\x1f\x8b\x08",
    "large": LARGE,
}
NO_KEYS = [
    "",
    "/",
    "/m/1",
    "m/",
    "m//1",
    "..",
    ".",
    "m/../1",
    "../1",
    "m/./1",
    "m/..",
    ".hidden",
    "m/.tmp-1-2",
    "m/1\n",
    "m/\0",
    "m\\1",
    "m/ü",
    "m/a b",
    "m/%2e%2e/1",
    "m/1?versionId=1",
    "s3://b/1",
    "~/1",
    "m_1",
]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_object_is_read_back_byte_by_byte(store: Store, body: bytes) -> None:
    store.put_new("d/1.mfs", body)
    assert store.get("d/1.mfs", 10_000_000) == body


@pytest.mark.parametrize(("limit", "read"), [(0, b"a"), (1, b"ab"), (2, b"abc"), (3, b"abc"), (2**30, b"abc")])
def test_a_read_stops_one_byte_past_its_limit(store: Store, limit: int, read: bytes) -> None:
    store.put_new("m/1", b"abc")
    assert store.get("m/1", limit) == read


def test_an_empty_object_is_there(store: Store) -> None:
    store.put_new("m/1", b"")
    assert (store.get("m/1", 0), store.list("m/")) == (b"", ["m/1"])


@pytest.mark.parametrize("first", [b"first", b""])
@pytest.mark.parametrize("second", [b"second", b"", b"first"])
def test_no_object_is_ever_written_over(place: Place, first: bytes, second: bytes) -> None:
    place.open().put_new("m/1", first)
    with pytest.raises(KeyExists, match="m/1' already exists"):
        place.open().put_new("m/1", second)
    assert place.open().get("m/1", 100) == first


@pytest.mark.fault("D2")
def test_of_several_that_create_one_object_exactly_one_succeeds(place: Place) -> None:
    stores = [place.open() for _ in range(4)]
    barrier = threading.Barrier(8)

    def attempt(round_: int, racer: int) -> str:
        barrier.wait()
        try:
            stores[racer % 4].put_new(f"m/{round_}", b"%d" % racer * 1_000)
        except KeyExists:
            return "exists"
        return "won"

    with ThreadPoolExecutor(8) as pool:
        for round_ in range(place.rounds):
            outcomes = list(pool.map(attempt, [round_] * 8, range(8)))
            assert Counter(outcomes) == {"won": 1, "exists": 7}
            assert stores[0].get(f"m/{round_}", 10_000) == b"%d" % outcomes.index("won") * 1_000


def test_a_reader_sees_a_whole_object_or_none(place: Place) -> None:
    done = threading.Event()
    seen: Counter[int] = Counter()

    def read() -> None:
        store = place.open()
        while not done.is_set():
            for number in range(4):
                try:
                    seen[len(store.get(f"d/{number}", 10_000_000))] += 1
                except KeyMissing:
                    seen[-1] += 1
            assert all(len(store.get(key, 10_000_000)) == len(LARGE) for key in store.list("d/"))

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for number in range(4):
            place.open().put_new(f"d/{number}", LARGE)
        done.set()
        reading.result()
    assert set(seen) <= {-1, len(LARGE)}
    assert seen.total() >= 4


@pytest.mark.parametrize("key", ["m/1", "nothing/here/1", "job.json"])
def test_a_missing_object_is_told_as_such(store: Store, key: str) -> None:
    store.put_new("m/2", b"")
    with pytest.raises(KeyMissing, match=key):
        store.get(key, 100)


def test_a_listing_is_sorted_and_of_one_folder(store: Store) -> None:
    for key in ("m/2", "m/10", "m/1", "mm/1", "m-1", "d/m/1", "job.json", "m/sub/3"):
        store.put_new(key, b"")
    assert store.list("m/") == ["m/1", "m/10", "m/2", "m/sub/3"]
    assert store.list("m/sub/") == ["m/sub/3"]
    assert store.list("") == ["d/m/1", "job.json", "m-1", "m/1", "m/10", "m/2", "m/sub/3", "mm/1"]


def test_a_folder_that_is_not_there_lists_as_empty(store: Store) -> None:
    assert (store.list(""), store.list("m/")) == ([], [])
    store.put_new("d/1", b"")
    assert store.list("m/") == []


@pytest.mark.fault("C13")
def test_a_listing_is_of_now(place: Place) -> None:
    ours, theirs = place.open(), place.open()
    for number in range(3):
        assert ours.list("m/") == [f"m/{seen}" for seen in range(number)]
        with pytest.raises(KeyMissing):
            ours.get(f"m/{number}", 10)
        theirs.put_new(f"m/{number}", b"%d" % number)
        assert ours.get(f"m/{number}", 10) == b"%d" % number
    theirs.delete("m/1")
    assert ours.list("m/") == ["m/0", "m/2"]
    with pytest.raises(KeyMissing):
        ours.get("m/1", 10)


@pytest.mark.parametrize("place", ["local", *S3_PLACES], indirect=True)
def test_another_process_shares_the_store(place: Place) -> None:
    store = place.open()
    store.put_new("m/1", b"ours")
    assert store.list("m/") == ["m/1"]
    told = run_python(
        f"from malflow.store.opening import open_store; store = {place.source}\n"
        "print(store.list('m/'), store.get('m/1', 9))\n"
        "store.put_new('m/2', b'theirs'); store.delete('m/1')"
    )
    assert (told.stdout, told.stderr) == ("['m/1'] b'ours'\n", "")
    assert (store.list("m/"), store.get("m/2", 9)) == (["m/2"], b"theirs")


def test_a_forked_process_uses_the_store_it_got(place: Place) -> None:
    store = place.open()
    store.put_new("m/1", b"parent")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            os._exit(0 if store.get("m/1", 9) == b"parent" and store.put_new("m/2", b"child") is None else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("m/1", 9) == b"parent"
    assert store.list("m/") == (["m/1", "m/2"] if "memory" not in repr(store) else ["m/1"])


def test_deleting_twice_is_no_error(place: Place) -> None:
    store = place.open()
    store.delete("never/there")
    store.put_new("m/1", b"old")
    store.delete("m/1")
    place.open().delete("m/1")
    with pytest.raises(KeyMissing):
        store.get("m/1", 10)
    assert store.list("m/") == []
    store.put_new("m/1", b"new")
    assert store.get("m/1", 10) == b"new"


def test_invalid_store_keys_are_refused_and_touch_nothing(store: Store) -> None:
    for key in NO_KEYS:
        assert not is_key(key)
        for operation in (partial(store.put_new, key, b""), partial(store.get, key, 1), partial(store.delete, key)):
            with pytest.raises(StoreError, match="nothing was touched"):
                operation()
        assert store.list("") == [], key


@pytest.mark.parametrize("prefix", ["m", "/", "/m/", "../", "m//", ".tmp/", "m/*/"])
def test_invalid_folder_is_refused(store: Store, prefix: str) -> None:
    for operation in (lambda: store.list(prefix), lambda: store.sweep(prefix, lambda _: True)):
        with pytest.raises(StoreError, match="nothing was touched"):
            operation()


def test_other_things_in_a_folder_do_no_harm(place: Place) -> None:
    for name in ("m/no key", "m/.hidden", "m/.tmp-1-00", "m/_SUCCESS", "m/readme.txt", "m/ü", "mm", "top"):
        place.plant(name, b"theirs")
    store = place.open()
    store.put_new("m/1", b"")
    assert store.list("m/") == ["m/1", "m/readme.txt"]
    assert store.get("m/readme.txt", 100) == b"theirs"
    with pytest.raises(KeyExists):
        store.put_new("m/readme.txt", b"ours")


def test_a_sweep_leaves_objects_alone(store: Store) -> None:
    store.put_new("m/1", b"")
    asked: list[str] = []
    store.sweep("m/", lambda key: not asked.append(key))
    store.sweep("nothing/", lambda _: True)
    assert (store.list("m/"), asked) == (["m/1"], [])


def test_several_threads_use_one_store(store: Store) -> None:
    def use(number: int) -> bool:
        body = b"%d" % number * 10_000
        store.put_new(f"d/{number}", body)
        return store.get(f"d/{number}", 100_000) == body and f"d/{number}" in store.list("d/")

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(40)))
    assert len(store.list("d/")) == 40
