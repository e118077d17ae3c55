"""A store that fails where a test says so.

    memory = MemoryStore()
    faults = Faults(Fault("error_after", "put_new", "manifest", nth=2))
    store = FaultyStore(memory, faults)     # one view for each run, all of them with the same `faults`

`faults.log` has every call, `faults.fired` what has fired, `faults.late` the writes that are still under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from malflow.errors import StoreError
from malflow.snapshot.protocol.manifest import BOUNDARIES, DATA, JOB, MANIFESTS
from malflow.store.contract import KeyExists, Store, Transient, UnknownOutcome
from malflow.store.local import LocalStore
from malflow.testing import Crash
from tests.kit.faults import ArmedFaults, Fault

__all__ = [
    "KEY_CLASSES",
    "KINDS",
    "Call",
    "Crash",
    "Faults",
    "FaultyStore",
    "Late",
    "can_tell",
    "key_class_of",
]

_FOLDERS = {JOB: "job", MANIFESTS: "manifest", DATA: "data", BOUNDARIES: "boundary"}
KEY_CLASSES = tuple(_FOLDERS.values())

_WRITE = ("crash_before", "crash_after", "error_before", "error_after", "unknown_before", "late", "crash_late")
KINDS: dict[str, tuple[str, ...]] = {
    "put_new": (*_WRITE, "throttled"),
    "get": ("crash_before", "error_before", "throttled"),
    "list": ("crash_before", "error_before", "throttled"),
    "delete": ("crash_before", "crash_after", "error_before", "error_after", "throttled"),
    "sweep": ("crash_before", "crash_after", "error_before"),
}
"""The kinds of fault that each operation of any store can have, beside those of `tests.kit.faults.Fault`:

- ``unknown_before``: UnknownOutcome, not done and never will be;
- ``crash_late``: the process ends, and the write is done when it is released;
- ``torn``: half of a temporary file is written, and the process ends; only `put_new` above a LocalStore.

An error is a StoreError before, an UnknownOutcome after a write, and otherwise Transient.
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a store: `key` is the prefix where the operation has one."""

    operation: str
    key: str

    @property
    def key_class(self) -> str:
        """The class of its key."""
        return key_class_of(self.key)


@dataclass(eq=False, slots=True)
class Late:
    """A write that is under way: `arrive` does it, at the latest after so many more calls that could tell."""

    key: str
    left: int | None
    arrive: Callable[[], None]

    def is_due(self, call: Call) -> bool:
        """Whether it arrives before a call."""
        if self.left is None or not can_tell(call, self.key):
            return False
        self.left -= 1
        return self.left < 0

    def __repr__(self) -> str:
        return f"Late({self.key!r})"


class Faults:
    """The faults of all views of one store; their targets are classes of keys, of `KEY_CLASSES`."""

    def __init__(self, *faults: Fault) -> None:
        self.log: list[Call] = []
        self.late: list[Late] = []
        self._armed = ArmedFaults()
        for fault in faults:
            self.arm(fault)

    @property
    def fired(self) -> list[Fault]:
        """The faults that have fired, in order."""
        return self._armed.fired

    def arm(self, fault: Fault) -> None:
        """Inject a fault from now on."""
        self._armed.arm(fault)

    def clear(self) -> None:
        """Inject no more faults; late writes stay late."""
        self._armed.clear()

    def release(self, late: Late | None = None) -> None:
        """Apply one late write, or all of them in order."""
        for one in [late] if late is not None else [*self.late]:
            self.late.remove(one)
            one.arrive()

    def take(self, call: Call) -> Fault | None:
        """Log a call and apply the late writes that are due; return the fault of the call, if any."""
        for late in [late for late in self.late if late.is_due(call)]:
            self.release(late)
        self.log.append(call)
        return self._armed.take(call.operation, call.key_class)


class FaultyStore:
    """A view of a store, as one run has it, whose calls go wrong as `faults` say.

    Args:
        store: the store itself.
        faults: what goes wrong, and the log; all views of one store share it.
        before: called before each call, such as to let another run go on first.
    """

    def __init__(self, store: Store, faults: Faults, *, before: Callable[[Call], object] | None = None) -> None:
        self.store = store
        self.faults = faults
        self._before = before

    def put_new(self, key: str, data: bytes) -> None:
        """Write an object, or not."""
        fault = self._take("put_new", key)
        if fault is not None and fault.kind in ("late", "crash_late"):
            self._delay(fault, key, data)
        elif fault is not None and fault.kind == "torn":
            _tear(self.store, key, data)
            raise Crash(f"while it wrote '{key}'")
        else:
            self._do(fault, key, lambda: self.store.put_new(key, data), UnknownOutcome)

    def get(self, key: str, limit: int) -> bytes:
        """Read an object, or not."""
        data: bytes = self._do(self._take("get", key), key, lambda: self.store.get(key, limit), Transient)
        return data

    def list(self, prefix: str) -> list[str]:
        """List a folder, or not."""
        keys: Sequence[str] = self._do(self._take("list", prefix), prefix, lambda: self.store.list(prefix), Transient)
        return [*keys]

    def delete(self, key: str) -> None:
        """Remove an object, or not."""
        self._do(self._take("delete", key), key, lambda: self.store.delete(key), Transient)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Remove what is left of interrupted writes, or not."""
        self._do(self._take("sweep", prefix), prefix, lambda: self.store.sweep(prefix, dead), Transient)

    def _take(self, operation: str, key: str) -> Fault | None:
        call = Call(operation, key)
        if self._before is not None:
            self._before(call)
        return self.faults.take(call)

    def _do(self, fault: Fault | None, key: str, operation: Callable[[], Any], doubt: type[StoreError]) -> Any:
        kind = "" if fault is None else fault.kind
        if kind == "crash_before":
            raise Crash(f"before '{key}'")
        if kind in _REFUSALS:
            raise _REFUSALS[kind](f"'{key}': {kind}, as the test wants it")
        result = operation()
        if kind == "crash_after":
            raise Crash(f"after '{key}'")
        if kind == "error_after":
            raise doubt(f"'{key}': {kind}, as the test wants it")
        assert not kind, f"{fault} can't happen to this operation of this store"
        return result

    def _delay(self, fault: Fault, key: str, data: bytes) -> None:
        def arrive() -> None:
            with suppress(KeyExists):
                self.store.put_new(key, data)

        self.faults.late.append(Late(key, fault.release_after, arrive))
        if fault.kind == "crash_late":
            raise Crash(f"while '{key}' was under way")
        raise UnknownOutcome(f"'{key}': late, as the test wants it")


_REFUSALS: dict[str, type[StoreError]] = {
    "error_before": StoreError,
    "throttled": Transient,
    "unknown_before": UnknownOutcome,
}


def can_tell(call: Call, key: str) -> bool:
    """Whether the result of a call depends on the presence of an object."""
    return call.key == key or (call.operation == "list" and key.startswith(call.key))


def key_class_of(key: str) -> str:
    """Return the class of a key or a prefix."""
    return next(name for folder, name in _FOLDERS.items() if key.startswith(folder))


def _tear(store: Store, key: str, data: bytes) -> None:
    """Leave what a local store leaves when the process ends while it writes."""
    assert isinstance(store, LocalStore)
    path = store._root / key
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    (path.parent / f".tmp-{path.name}-{0:016x}").write_bytes(data[: len(data) // 2])
