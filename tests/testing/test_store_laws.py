"""The suite for stores: it passes a good one, and names the law that a bad one breaks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from malflow import GraphError
from malflow.store import KeyExists, KeyMissing, Transient, UnknownOutcome, require_folder, require_key
from malflow.testing import assert_store
from malflow.testing.store_laws import STORE_LAWS

pytestmark = pytest.mark.slow


class Good:
    """Keeps all laws, in a dict that all objects of a test share; subclasses break one."""

    objects: ClassVar[dict[str, bytes]] = {}
    lock: ClassVar[Any] = threading.Lock()
    is_away: ClassVar[bool] = False

    def put_new(self, key: str, data: bytes) -> None:
        require_key(key)
        self.reach(UnknownOutcome)
        with self.lock:
            if key in self.objects:
                raise KeyExists(key)
            self.objects[key] = data

    def get(self, key: str, limit: int) -> bytes:
        require_key(key)
        self.reach(Transient)
        if key not in self.objects:
            raise KeyMissing(key)
        return self.objects[key][: limit + 1]

    def list(self, prefix: str) -> list[str]:
        require_folder(prefix)
        self.reach(Transient)
        return sorted(key for key in tuple(self.objects) if key.startswith(prefix))

    def delete(self, key: str) -> None:
        require_key(key)
        self.reach(Transient)
        self.objects.pop(key, None)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        require_folder(prefix)

    def reach(self, error: type[Exception]) -> None:
        if self.is_away:
            raise error("the dict is away")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    Good.objects.clear()
    yield
    Good.is_away = False


@contextmanager
def outage() -> Iterator[None]:
    Good.is_away = True
    try:
        yield
    finally:
        Good.is_away = False


class Strips(Good):
    def get(self, key: str, limit: int) -> bytes:
        return super().get(key, limit).rstrip(b"\n")


class Cuts(Good):
    def get(self, key: str, limit: int) -> bytes:
        return super().get(key, limit)[:limit]


class ReadsAll(Good):
    def get(self, key: str, limit: int) -> bytes:
        return super().get(key, 1 << 40)


class ReturnsNothingForMissing(Good):
    def get(self, key: str, limit: int) -> bytes:
        try:
            return super().get(key, limit)
        except KeyMissing:
            return b""


class RaisesKeyError(Good):
    def get(self, key: str, limit: int) -> bytes:
        require_key(key)
        self.reach(Transient)
        return self.objects[key][: limit + 1]


class FindsPrefixes(Good):
    def get(self, key: str, limit: int) -> bytes:
        found = [it for it in self.list("") if it.startswith(key)]
        return super().get(found[0] if found else key, limit)


class Overwrites(Good):
    def put_new(self, key: str, data: bytes) -> None:
        require_key(key)
        self.reach(UnknownOutcome)
        self.objects[key] = data


class Ignores(Good):
    def put_new(self, key: str, data: bytes) -> None:
        require_key(key)
        self.reach(UnknownOutcome)
        self.objects.setdefault(key, data)


class AcceptsTheSame(Good):
    def put_new(self, key: str, data: bytes) -> None:
        if self.objects.get(key) != data:
            super().put_new(key, data)


class ReplacesEmpty(Good):
    def put_new(self, key: str, data: bytes) -> None:
        if self.objects.get(key) == b"":
            del self.objects[key]
        super().put_new(key, data)


class RaisesFileExists(Good):
    def put_new(self, key: str, data: bytes) -> None:
        try:
            super().put_new(key, data)
        except KeyExists:
            raise FileExistsError(key) from None


class ChecksFirst(Good):
    def put_new(self, key: str, data: bytes) -> None:
        require_key(key)
        self.reach(UnknownOutcome)
        if key in self.objects:
            raise KeyExists(key)
        threading.Event().wait(0.01)
        self.objects[key] = data


class WritesInPieces(Good):
    def put_new(self, key: str, data: bytes) -> None:
        if len(data) < 1_000_000:
            super().put_new(key, data)
            return
        super().put_new(key, data[:1_000])
        threading.Event().wait(0.05)
        self.objects[key] = data


class Unsorted(Good):
    def list(self, prefix: str) -> list[str]:
        return super().list(prefix)[::-1]


class ListsOneLevel(Good):
    def list(self, prefix: str) -> list[str]:
        return [it for it in super().list(prefix) if "/" not in it.removeprefix(prefix) or "law-" not in prefix]


class ListsNeighbours(Good):
    def list(self, prefix: str) -> list[str]:
        require_folder(prefix)
        return sorted(it for it in self.objects if it.startswith(prefix.rstrip("/")))


class ListsOnePage(Good):
    def list(self, prefix: str) -> list[str]:
        return super().list(prefix)[:1_000]


class ListsLate(Good):
    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}

    def list(self, prefix: str) -> list[str]:
        if prefix not in self.known or "fresh" not in prefix:
            self.known[prefix] = super().list(prefix)
        return self.known[prefix]


class ReadsFromACache(Good):
    def __init__(self) -> None:
        self.cache: dict[str, bytes] = {}

    def get(self, key: str, limit: int) -> bytes:
        if key not in self.cache:
            self.cache[key] = super().get(key, 1 << 40)
        return self.cache[key][: limit + 1]


class RemembersWhatItWrote(Good):
    def __init__(self) -> None:
        self.written: dict[str, bytes] = {}

    def put_new(self, key: str, data: bytes) -> None:
        super().put_new(key, data)
        self.written[key] = data

    def get(self, key: str, limit: int) -> bytes:
        if key in self.written and "lost" in key:
            return self.written[key][: limit + 1]
        return super().get(key, limit)


class RefusesToDeleteTwice(Good):
    def delete(self, key: str) -> None:
        require_key(key)
        self.reach(Transient)
        del self.objects[key]


class DeletesPrefixes(Good):
    def delete(self, key: str) -> None:
        require_key(key)
        self.reach(Transient)
        for it in self.list(""):
            if it.startswith(key):
                del self.objects[it]


class NeverDeletes(Good):
    def delete(self, key: str) -> None:
        require_key(key)


class KeepsTombstones(Good):
    gone: ClassVar[set[str]] = set()

    def delete(self, key: str) -> None:
        super().delete(key)
        self.gone.add(key)

    def put_new(self, key: str, data: bytes) -> None:
        if key in self.gone:
            raise KeyExists(key)
        super().put_new(key, data)


class SweepsAll(Good):
    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        for key in self.list(prefix):
            if dead(key):
                self.delete(key)


class TakesAnyKey(Good):
    def delete(self, key: str) -> None:
        self.reach(Transient)
        self.objects.pop(key, None)


class TakesAnyFolder(Good):
    def list(self, prefix: str) -> list[str]:
        self.reach(Transient)
        return sorted(key for key in tuple(self.objects) if key.startswith(prefix))


class OneThread(Good):
    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def reach(self, error: type[Exception]) -> None:
        super().reach(error)
        if threading.get_ident() != self.thread:
            raise RuntimeError("objects of this class can only be used in the thread that made them")


class KeepsALock(Good):
    def __init__(self) -> None:
        self.own_lock = threading.Lock()


class CopiesWithPickle(Good):
    def __reduce__(self) -> Any:
        return Elsewhere, ()


class Elsewhere(Good):
    objects: ClassVar[dict[str, bytes]] = {}


class ListsNothingWhileAway(Good):
    def list(self, prefix: str) -> list[str]:
        return [] if self.is_away else super().list(prefix)


class MissesAllWhileAway(Good):
    def get(self, key: str, limit: int) -> bytes:
        if self.is_away:
            raise KeyMissing(key)
        return super().get(key, limit)


class RaisesAnythingWhileAway(Good):
    def reach(self, error: type[Exception]) -> None:
        if self.is_away:
            raise ConnectionError("refused")


class WritesHalfWhileAway(Good):
    def put_new(self, key: str, data: bytes) -> None:
        if self.is_away:
            self.objects[key] = data[: len(data) // 2]
        super().put_new(key, data)


class Hangs(Good):
    def reach(self, error: type[Exception]) -> None:
        if self.is_away:
            threading.Event().wait(5)


class ShowsThePassword(Good):
    def __repr__(self) -> str:
        return "Store(password='hush')"


class SaysThePassword(Good):
    def get(self, key: str, limit: int) -> bytes:
        try:
            return super().get(key, limit)
        except KeyMissing:
            raise KeyMissing(f"https://me:hush@host/{key}") from None


BAD = {
    Strips: "read",
    Cuts: "limit",
    ReadsAll: "limit",
    ReturnsNothingForMissing: "missing",
    RaisesKeyError: "missing",
    FindsPrefixes: "missing",
    Overwrites: "exclusive",
    Ignores: "exclusive",
    AcceptsTheSame: "exclusive",
    ReplacesEmpty: "exclusive",
    RaisesFileExists: "exclusive",
    ChecksFirst: "race",
    WritesInPieces: "whole",
    Unsorted: "listing",
    ListsOneLevel: "listing",
    ListsNeighbours: "listing",
    ListsOnePage: "pages",
    ListsLate: "fresh",
    ReadsFromACache: "fresh",
    RefusesToDeleteTwice: "deletion",
    DeletesPrefixes: "deletion",
    NeverDeletes: "deletion",
    KeepsTombstones: "deletion",
    SweepsAll: "sweep",
    TakesAnyKey: "keys",
    TakesAnyFolder: "keys",
    OneThread: "race",
    RemembersWhatItWrote: "lost",
    KeepsALock: "pickled",
    CopiesWithPickle: "pickled",
    ListsNothingWhileAway: "outage",
    MissesAllWhileAway: "outage",
    RaisesAnythingWhileAway: "outage",
    WritesHalfWhileAway: "outage",
    Hangs: "outage",
    ShowsThePassword: "secrets",
    SaysThePassword: "secrets",
}


def test_a_good_store_passes_and_nothing_is_left_in_it() -> None:
    Good.objects["theirs/1"] = b"of somebody else"
    assert_store(Good, outage=outage, secrets=["hush"])
    assert Good.objects == {"theirs/1": b"of somebody else"}


@pytest.mark.parametrize(("kind", "law"), BAD.items(), ids=lambda it: getattr(it, "__name__", it))
def test_a_bad_store_breaks_a_law(kind: Any, law: str) -> None:
    with pytest.raises(AssertionError, match=rf"^assert_store: the law '{law}' is broken: "):
        assert_store(kind, outage=outage, timeout=2.0, secrets=["hush"])


@pytest.mark.parametrize("kind", [it for it, law in BAD.items() if law == "exclusive" and it is not RaisesFileExists])
def test_a_run_of_a_job_finds_out_that_its_store_is_bad(kind: Any) -> None:
    without = [law for law in STORE_LAWS if law != "runs"]
    if kind is ReplacesEmpty:
        assert_store(kind, without=without)
        return
    with pytest.raises(AssertionError, match="the law 'runs' is broken: "):
        assert_store(kind, without=without)


def test_a_law_that_is_left_out_is_not_checked() -> None:
    assert_store(KeepsALock, without=["pickled"])


def test_an_object_without_the_methods_of_a_store_is_refused() -> None:
    with pytest.raises(GraphError, match=r"assert_store needs a store; \[\] has no put_new\(key, data\), get\("):
        assert_store(list)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="assert_store has no law 'fast'"):
        assert_store(Good, without=["fast"])
