"""The suite for stores: whether snapshots in a store are safe from crashes, and from other runs of the job."""

from __future__ import annotations

import pickle
import secrets as chance
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final

from malflow.checks import checked_wait
from malflow.durations import Duration
from malflow.errors import FencedError, SnapshotIncomplete, StoreError
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.sinks.vec import VecSink
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.history import fsck
from malflow.snapshot.persistence import RestoreOptions
from malflow.states.keyed import Delta, StateDelta
from malflow.states.kinds import StateKind, StateSpec
from malflow.store.contract import KeyExists, KeyMissing, Store, check_is_store
from malflow.streams.stream import StreamProvider
from malflow.testing.laws import Laws, in_a_thread
from malflow.testing.scripted import END, ScriptedSource
from malflow.words import error_line, plural, short_repr

__all__ = ["STORE_LAWS", "assert_store"]

STORE_LAWS: Final = (
    "read",
    "limit",
    "missing",
    "exclusive",
    "race",
    "whole",
    "listing",
    "pages",
    "deletion",
    "fresh",
    "sweep",
    "keys",
    "threads",
    "pickled",
    "runs",
    "lost",
    "outage",
    "secrets",
)

_LARGE: Final = array("I", range(500_000)).tobytes()
_BODIES: Final = (b"", b"\0", bytes(range(256)), b"\r\n\x1a \n" * 9, b"\x1f\x8b\x08", _LARGE + b"!")
_NO_KEYS: Final = ("", "/", "/m", "m/", "m//1", ".", "m/../1", "../1", ".hidden", "m/.tmp-1", "m/1\n", "m\\1", "m/ü")
_NO_FOLDERS: Final = ("m", "/", "/m/", "../", "m//", ".tmp/", "m/*/")
_RACERS: Final = 4
"""Threads that create one key. More: more load on the store; fewer: races are met less often."""

_ROUNDS: Final = 12
"""Races. More: slower; fewer: a store without atomic creation may pass."""

_MOST: Final = 1 << 30
"""A limit on bytes above all objects of the tests."""


def assert_store(
    make_store: Callable[[], Store],
    *,
    outage: Callable[[], AbstractContextManager[object]] | None = None,
    pages: int = 1_100,
    timeout: Duration = 60.0,
    without: Collection[str] = (),
    secrets: Sequence[str] = (),
) -> None:
    """Check that a store keeps the laws of the contract. Snapshots in it are then exactly-once.

    All objects are below a new folder ``law-...``, and are deleted at the end; others may be in the store. The laws:

    - ``read``: an object is read back byte by byte, be it empty or of some megabytes.
    - ``limit``: `get` returns one byte more than its limit of an object that is longer, and no more.
    - ``missing``: `get` of a key that does not exist raises `KeyMissing`, also next to keys that look like it.
    - ``exclusive``: `put_new` raises `KeyExists` if the key exists, and leaves the object as it was.
    - ``race``: of several that create one key at once, exactly one succeeds, and the object is its own.
    - ``whole``: while an object is written, others see all of it or nothing.
    - ``listing``: `list` returns all keys below a folder, at any depth, sorted, and no others.
    - ``pages``: a long listing is complete.
    - ``deletion``: a deleted object is gone, a missing one can be deleted, and the key can be used again.
    - ``fresh``: what one store object has written or deleted, another one sees at once.
    - ``sweep``: `sweep` leaves objects alone, also those whose keys it is to take for dead.
    - ``keys``: a key or folder that is not valid raises a `StoreError`, and nothing is written or deleted.
    - ``threads``: several threads can use one object.
    - ``pickled``: a pickled copy reaches the same objects, as Spark needs it.
    - ``runs``: a job that is stopped continues from its snapshot, on another store object; a run whose job another one
      has claimed writes no more snapshots.
    - ``lost``: a run whose last snapshot is gone, as after its store was put back to an older copy, writes no more, and
      the next one continues from the snapshot before.
    - ``outage``: checked if `outage` is passed. While the system does not answer, each operation raises a `StoreError`
      within `timeout`; `get` does not raise `KeyMissing`, nor does `list` return an empty list. Afterwards the store
      can be used again, and an object whose `put_new` failed is there as a whole or not at all.
    - ``secrets``: none of `secrets` is in the ``repr`` of the store, or in the errors of these laws.

    Args:
        make_store: returns a new store object, always on the same place, as another process would open it.
        outage: makes the system unreachable while its context is open.
        pages: how many keys the long listing has; more than the system returns at once.
        timeout: the most time until an operation gives up.
        without: the laws that are not checked.
        secrets: texts that may not show, such as passwords.

    Raises:
        AssertionError: naming the first law that is broken.
        GraphError: if it is not a store, or `without` has an unknown law.
    """
    __tracebackhide__ = True
    laws = Laws("assert_store", STORE_LAWS, without, secrets)
    suite = _StoreSuite(make_store, laws, checked_wait("assert_store", timeout))
    checks: dict[str, Callable[[], None]] = {
        "read": suite.check_read,
        "limit": suite.check_limit,
        "missing": suite.check_missing,
        "exclusive": suite.check_exclusive,
        "listing": suite.check_listing,
        "deletion": suite.check_deletion,
        "fresh": suite.check_fresh,
        "sweep": suite.check_sweep,
        "keys": suite.check_keys,
        "race": suite.check_race,
        "whole": suite.check_whole,
        "threads": suite.check_threads,
        "pages": partial(suite.check_pages, pages),
        "pickled": suite.check_pickled,
        "runs": suite.check_runs,
        "lost": suite.check_lost,
    }
    if outage is not None:
        checks["outage"] = partial(suite.check_outage, outage)
    try:
        laws.hide("the repr of the store", repr(suite.store()))
        for law, check in checks.items():
            if laws.has(law):
                with laws.of(law):
                    check()
    finally:
        suite.clear()


class _StoreSuite:
    def __init__(self, make_store: Callable[[], Store], laws: Laws, timeout: float) -> None:
        self._make = make_store
        self._laws = laws
        self._timeout = timeout
        self._root = f"law-{chance.token_hex(4)}/"

    def store(self, law: str = "") -> Store:
        """Return a new store object in a folder of a law's own."""
        made = self._make()
        check_is_store(made, "assert_store")
        return _Below(made, f"{self._root}{law}/" if law else self._root)

    def clear(self) -> None:
        """Delete what the laws have written."""
        store = self.store()
        with suppress(Exception):  # the laws have found what is wrong
            for key in store.list(""):
                store.delete(key)

    def check_read(self) -> None:
        __tracebackhide__ = True
        store = self.store("read")
        for number, body in enumerate(_BODIES):
            store.put_new(f"d/{number}", body)
            self._read("read", store, f"d/{number}", body)

    def check_limit(self) -> None:
        __tracebackhide__ = True
        store = self.store("limit")
        store.put_new("m/1", b"abc")
        for limit, expected in ((0, b"a"), (1, b"ab"), (2, b"abc"), (3, b"abc"), (_MOST, b"abc")):
            got = store.get("m/1", limit)
            if got != expected:
                self._laws.broken("limit", f"get(key, {limit}) of b'abc' returned {got!r}; expected {expected!r}")
        store.put_new("m/2", b"")
        self._read("limit", store, "m/2", b"", 0)

    def check_missing(self) -> None:
        __tracebackhide__ = True
        store = self.store("missing")
        self._miss("missing", store, "m/1", "in an empty store")
        store.put_new("m/10", b"")
        for key in ("m/1", "m/100", "m-10", "nothing/here/1", "1"):
            self._miss("missing", store, key, "next to 'm/10'")

    def check_exclusive(self) -> None:
        __tracebackhide__ = True
        ours, theirs = self.store("exclusive"), self.store("exclusive")
        for number, first in enumerate((b"first", b"")):
            key = f"m/{number}"
            ours.put_new(key, first)
            for store, second in ((ours, b"second"), (theirs, b"second"), (theirs, b""), (theirs, first)):
                self._refuse(store, key, second, first)
            self._read("exclusive", self.store("exclusive"), key, first)

    def check_race(self) -> None:
        __tracebackhide__ = True
        stores = [self.store("race") for _ in range(_RACERS // 2)]
        barrier = threading.Barrier(_RACERS)

        def attempt(number: int, racer: int) -> str:
            barrier.wait(self._timeout)
            try:
                stores[racer % len(stores)].put_new(f"m/{number}", b"%d" % racer * 1_000)
            except KeyExists:
                return "exists"
            return "won"

        with ThreadPoolExecutor(_RACERS) as pool:
            for number in range(_ROUNDS):
                outcomes = list(pool.map(attempt, [number] * _RACERS, range(_RACERS)))
                if Counter(outcomes)["won"] != 1:
                    self._laws.broken("race", f"{Counter(outcomes)['won']} of {_RACERS} created one key; expected 1")
                self._read("race", stores[0], f"m/{number}", b"%d" % outcomes.index("won") * 1_000)

    def check_whole(self) -> None:
        __tracebackhide__ = True
        done = threading.Event()

        def read() -> set[int]:
            store, seen = self.store("whole"), set()
            while not done.is_set():
                for number in range(_RACERS):
                    with suppress(KeyMissing):
                        seen.add(len(store.get(f"d/{number}", _MOST)))
                seen.update(len(store.get(key, _MOST)) for key in store.list("d/"))
            return seen

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            try:
                for number in range(_RACERS):
                    self.store("whole").put_new(f"d/{number}", _LARGE)
            finally:
                done.set()
            partial_sizes = reading.result(self._timeout) - {len(_LARGE)}
        if partial_sizes:
            size = min(partial_sizes)
            self._laws.broken("whole", f"an object of {len(_LARGE)} bytes had {size} while it was written")

    def check_listing(self) -> None:
        __tracebackhide__ = True
        store = self.store("listing")
        self._list("listing", store, "", [])
        self._list("listing", store, "m/", [])
        for key in ("m/2", "m/10", "m/1", "mm/1", "m-1", "d/m/1", "job.json", "m/sub/3"):
            store.put_new(key, b"")
        self._list("listing", store, "m/", ["m/1", "m/10", "m/2", "m/sub/3"])
        self._list("listing", store, "m/sub/", ["m/sub/3"])
        self._list("listing", store, "b/", [])
        self._list("listing", store, "", ["d/m/1", "job.json", "m-1", "m/1", "m/10", "m/2", "m/sub/3", "mm/1"])

    def check_pages(self, count: int) -> None:
        __tracebackhide__ = True
        store = self.store("pages")
        keys = [f"m/{number:06}" for number in range(count)]
        with ThreadPoolExecutor(_RACERS) as pool:
            for _ in pool.map(lambda key: store.put_new(key, b""), keys):
                pass
            listed = store.list("m/")
            for _ in pool.map(store.delete, keys):
                pass
        self._laws.alike("pages", f"list() of {plural(count, 'key')}", keys, listed)

    def check_fresh(self) -> None:
        __tracebackhide__ = True
        ours, theirs = self.store("fresh"), self.store("fresh")
        for number in range(3):
            self._list("fresh", ours, "m/", [f"m/{seen}" for seen in range(number)])
            self._miss("fresh", ours, f"m/{number}", "before another object has created it")
            theirs.put_new(f"m/{number}", b"%d" % number)
            self._read("fresh", ours, f"m/{number}", b"%d" % number)
        theirs.delete("m/1")
        self._list("fresh", ours, "m/", ["m/0", "m/2"])
        self._miss("fresh", ours, "m/1", "that another object has deleted")
        theirs.put_new("m/1", b"new")
        self._read("fresh", ours, "m/1", b"new")

    def check_deletion(self) -> None:
        __tracebackhide__ = True
        store = self.store("deletion")
        store.delete("never/there")
        for key in ("m/1", "m/10", "m/1-1"):
            store.put_new(key, b"old")
        store.delete("m/1")
        self.store("deletion").delete("m/1")
        self._miss("deletion", store, "m/1", "that was deleted")
        self._list("deletion", store, "m/", ["m/1-1", "m/10"])
        store.put_new("m/1", b"new")
        self._read("deletion", store, "m/1", b"new")

    def check_sweep(self) -> None:
        __tracebackhide__ = True
        store = self.store("sweep")
        store.put_new("m/1", b"1")
        for prefix in ("m/", "", "nothing/"):
            store.sweep(prefix, lambda _: True)
        self._list("sweep", store, "", ["m/1"])
        self._read("sweep", store, "m/1", b"1")

    def check_keys(self) -> None:
        __tracebackhide__ = True
        store = self._make()
        before = store.list("")
        calls: list[tuple[str, Callable[[], object]]] = []
        for key in _NO_KEYS:
            calls += [
                (f"put_new({key!r}, ...)", partial(store.put_new, key, b"")),
                (f"get({key!r}, ...)", partial(store.get, key, 1)),
                (f"delete({key!r})", partial(store.delete, key)),
            ]
        for folder in _NO_FOLDERS:
            calls += [
                (f"list({folder!r})", partial(store.list, folder)),
                (f"sweep({folder!r}, ...)", partial(store.sweep, folder, lambda _: False)),
            ]
        for text, call in calls:
            try:
                call()
            except StoreError:
                continue
            except Exception as error:  # noqa: BLE001 - the store's own
                self._laws.broken("keys", f"{text} raised {type(error).__name__}; expected a StoreError")
            self._laws.broken("keys", f"{text} raised nothing; expected a StoreError, as require_key() raises it")
        self._laws.alike("keys", "list('') after calls with invalid keys", before, store.list(""))

    def check_threads(self) -> None:
        __tracebackhide__ = True
        store = self.store("threads")

        def use(number: int) -> bool:
            body = b"%d" % number * 10_000
            store.put_new(f"d/{number}", body)
            return store.get(f"d/{number}", _MOST) == body and f"d/{number}" in store.list("d/")

        with ThreadPoolExecutor(_RACERS) as pool:
            if not all(pool.map(use, range(8 * _RACERS))):
                self._laws.broken("threads", "an object was not found, or was another, right after it was written")

    def check_pickled(self) -> None:
        __tracebackhide__ = True
        made = self._make()
        made.list("")  # a connection that it keeps is open by now
        try:
            copy = pickle.loads(pickle.dumps(made, 5))  # noqa: S301 - just written
        except Exception as error:  # noqa: BLE001 - the store's own
            text = error_line(error)
            self._laws.broken("pickled", f"{short_repr(made)} can't be pickled: {text}")
        there, here = _Below(copy, f"{self._root}pickled/"), self.store("pickled")
        there.put_new("m/1", b"copy")
        self._read("pickled", here, "m/1", b"copy")
        here.put_new("m/2", b"")
        self._list("pickled", there, "m/", ["m/1", "m/2"])

    def check_runs(self) -> None:
        __tracebackhide__ = True
        seen: VecSink[Any, Any, Any] = VecSink()

        def build(provider: StreamProvider) -> None:
            numbers = provider.new_stream().source("numbers", ScriptedSource([1, 2, END, 3, END, 4]))
            keyed = numbers.key_distribute("all", lambda msg: "all")
            keyed.stateful_map("sum", lambda _, value, total: (total + value, total + value), int).sink("seen", seen)

        def backend() -> FsspecBackend:
            return FsspecBackend(store=self.store("runs"), job="law", allow_unsigned_pickle=True)

        for parallelism in (1, 2, 1):
            SingleThreadRuntime(build, backend(), parallelism=parallelism).execute()
        if seen.values != [1, 3, 6, 10]:
            self._laws.broken("runs", f"a job that was stopped twice summed 1 to 4 up to {seen.values}")
        older, _ = backend().open((), RestoreOptions(allow_dropped_state=("numbers", "sum")))
        newer, _ = backend().open((), RestoreOptions(allow_dropped_state=("numbers", "sum")))
        with suppress(FencedError):
            older.commit(9, 1, (), ()).result(self._timeout)
            self._laws.broken("runs", "a run wrote a snapshot, though another one had claimed the job")
        older.close()
        newer.close(wait=True)
        if problems := fsck(backend()).problems:
            self._laws.broken("runs", f"fsck found {problems[0]}")

    def check_lost(self) -> None:
        __tracebackhide__ = True
        spec = StateSpec("sum", StateKind.STATEFUL_MAP, 1, "malflow.partitioners.rendezvous_select")

        def opened() -> tuple[Any, Any]:
            store = self.store("lost")
            return FsspecBackend(store=store, job="law", allow_unsigned_pickle=True).open([spec], RestoreOptions())

        def saved(run: Any, total: int) -> None:
            delta = Delta({"all": total}, whole=run.needs_full_snapshot(1))
            run.commit(total, 1, [spec], [StateDelta(0, "sum", delta, 1)]).result(self._timeout)

        run, _ = opened()
        before: set[str] = set()
        for total in (1, 2):
            before = set(self.store("lost").list(""))
            saved(run, total)
        run.confirm()
        other = self.store("lost")
        for key in set(other.list("")) - before:
            other.delete(key)
        with suppress(SnapshotIncomplete):
            saved(run, 3)
            self._laws.broken("lost", "a run wrote a snapshot, though another store object had deleted its last one")
        run.close()
        newer, restored = opened()
        newer.close(wait=True)
        if restored.states["sum"][0] != {"all": 1}:
            self._laws.broken("lost", f"the next run continued with {restored.states}; expected the sum 1")

    def check_outage(self, outage: Callable[[], AbstractContextManager[object]]) -> None:
        __tracebackhide__ = True
        store = self.store("outage")
        store.put_new("m/1", b"before")
        with outage():
            for name, call in (
                ("put_new", partial(store.put_new, "m/2", _LARGE)),
                ("get", partial(store.get, "m/1", 10)),
                ("get of a missing key", partial(store.get, "m/3", 10)),
                ("list", partial(store.list, "m/")),
                ("delete", partial(store.delete, "m/1")),
            ):
                self._fail(name, call)
        keys = store.list("m/")
        if "m/2" in keys:
            self._read("outage", store, "m/2", _LARGE)
        else:
            store.put_new("m/2", b"after")
        store.delete("m/1")
        self._list("outage", store, "m/", ["m/2"])

    def _fail(self, name: str, call: Callable[[], object]) -> None:
        """Check that an operation raises a `StoreError`, in time."""
        __tracebackhide__ = True
        done = in_a_thread(call)
        try:
            error = done.exception(self._timeout)
        except TimeoutError:
            self._laws.broken("outage", f"{name} did not return within {self._timeout:g} s")
        if error is None:
            self._laws.broken("outage", f"{name} returned {short_repr(done.result())} while the system was away")
        if not isinstance(error, StoreError):
            text = error_line(error)
            self._laws.broken(
                "outage", f"{name} raised {text}; expected Transient, UnknownOutcome or another StoreError"
            )
        self._laws.hide(f"the error of {name}", str(error))

    def _read(self, law: str, store: Store, key: str, expected: bytes, limit: int = _MOST) -> None:
        """Check what an object holds."""
        __tracebackhide__ = True
        got = store.get(key, limit)
        if got != expected:
            self._laws.broken(
                law,
                f"get({key!r}) returned {short_repr(got)} of {len(got)} bytes; expected {short_repr(expected)} of "
                f"{len(expected)}",
            )

    def _list(self, law: str, store: Store, folder: str, expected: Sequence[str]) -> None:
        """Check the keys below a folder."""
        __tracebackhide__ = True
        got = store.list(folder)
        if got != expected:
            self._laws.broken(law, f"list({folder!r}) returned {short_repr(got)}; expected {short_repr(expected)}")

    def _miss(self, law: str, store: Store, key: str, where: str) -> None:
        """Check that a key does not exist."""
        __tracebackhide__ = True
        try:
            got = store.get(key, 10)
        except KeyMissing as error:
            self._laws.hide("a KeyMissing", str(error))
            return
        except Exception as error:  # noqa: BLE001 - the store's own
            text = error_line(error)
            self._laws.broken(law, f"get({key!r}) {where} raised {text}; expected KeyMissing")
        self._laws.broken(law, f"get({key!r}) {where} returned {short_repr(got)}; expected KeyMissing")

    def _refuse(self, store: Store, key: str, data: bytes, first: bytes) -> None:
        """Check that an object is not written over."""
        __tracebackhide__ = True
        try:
            store.put_new(key, data)
        except KeyExists as error:
            self._laws.hide("a KeyExists", str(error))
            return
        except Exception as error:  # noqa: BLE001 - the store's own
            text = error_line(error)
            self._laws.broken("exclusive", f"put_new() of a key that exists raised {text}; expected KeyExists")
        self._laws.broken(
            "exclusive", f"put_new() of {data!r} to a key with {first!r} raised nothing; expected KeyExists"
        )


class _Below:
    """A folder of a store, as a store."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder

    def __repr__(self) -> str:
        return repr(self._store)

    def put_new(self, key: str, data: bytes) -> None:
        self._store.put_new(self._folder + key, data)

    def get(self, key: str, limit: int) -> bytes:
        return self._store.get(self._folder + key, limit)

    def list(self, prefix: str) -> list[str]:
        return [key.removeprefix(self._folder) for key in self._store.list(self._folder + prefix)]

    def delete(self, key: str) -> None:
        self._store.delete(self._folder + key)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        self._store.sweep(self._folder + prefix, lambda key: dead(key.removeprefix(self._folder)))
