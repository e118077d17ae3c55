"""Two runs of one job, and their collections, interleaved at every call of the store as a test wants it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from hypothesis import event, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from malflow.errors import CommitUnknown, FencedError, SnapshotCorrupt, SnapshotError, StoreError
from malflow.snapshot.history import fsck
from malflow.snapshot.names import manifest_key
from malflow.snapshot.persistence import Start
from malflow.snapshot.restore import load
from malflow.snapshot.store import KeyExists, KeyMissing, Transient, UnknownOutcome
from malflow.state import Delta, StateSpec
from tests.recovery.faulty_store import Crash, MemoryStore
from tests.recovery.scenario import StoredBackend, environment

__all__ = ["FAULTS", "POINTS", "Call", "Process", "SchedulerMachine", "Stepper", "World"]

FAULTS = ("error_before", "error_after", "late", "refused", "crash_before", "crash_after", "crash_late")
"""What can happen to one call; the late ones are done when the test says so."""

POINTS = (("put", "m/"), ("put", "d/"), ("put", "gc/"), ("list", "d/"), ("list", "m/"), ("delete", "d/"), ("get", ""))
"""Calls that a run can be left standing before."""

RETAIN = 1
STATE = StateSpec("log", "stateful_map", 1, None)


class Call(NamedTuple):
    """One call of the store, as a process is about to make it."""

    operation: str
    key: str


class Stepper:
    """Work on a thread of its own, which stands still before each call until it is told to make some more.

    Only one of the threads ever runs, the test's among them: nothing depends on the scheduler of the machine.
    """

    def __init__(self) -> None:
        self.waiting: Call | None = None
        self.error: BaseException | None = None
        self.result: Any = None
        self._go, self._still = threading.Semaphore(0), threading.Semaphore(0)
        self._left, self._fault, self._killed = 0, None, False
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        return self._thread is None

    def start(self, work: Callable[[], Any]) -> None:
        """Work until the first call."""
        self._left, self._killed, self.error, self.result = 0, False, None, None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self._rest()

    def step(self, calls: int = 1, fault: str | None = None) -> None:
        """Make some calls, the last of them with a fault, and stop before the next one."""
        self._left, self._fault = calls, fault
        self._go.release()
        self._rest()

    def kill(self) -> None:
        """End the work as a crash ends it."""
        if not self.is_idle:
            self._killed = True
            self.step()

    def meet(self, call: Call) -> str | None:
        """Stand before a call, on the thread that works; give the fault that it meets."""
        if self._left == 0 and not self._killed:
            self.waiting = call
            self._still.release()
            self._go.acquire()
            self.waiting = None
        if self._killed:
            raise Crash("killed")
        self._left -= 1
        return self._fault if self._left == 0 else None

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self.result = work()
        except BaseException as error:  # noqa: BLE001 - a crash, too, is told to the test
            self.error = error
        finally:
            self._still.release()

    def _rest(self) -> None:
        self._still.acquire()
        if self.waiting is None and self._thread is not None:
            self._thread.join()
            self._thread = None


class Published(NamedTuple):
    """A manifest that came to be, in the order in which they did."""

    seq: int
    epoch: int
    runner: str
    attempt: str


class World:
    """The objects of one job, everything that ever happened to them, and what must hold of them.

    Args:
        processes: how many there are.
        growth: an option of the backend.
    """

    def __init__(self, processes: int = 2, growth: float = 3.0) -> None:
        self.growth = growth
        self.objects: dict[str, bytes] = {}
        self.published: list[Published] = []
        self.late: list[tuple[str, Callable[[], object]]] = []
        self.violations: list[str] = []
        self.events: list[str] = []
        self.trace: list[tuple[str, str, str]] = []
        self.captured: set[tuple[str, ...]] = {()}
        self.void: set[str] = set()
        self._environment = environment()
        self._changes, self._checked = 0, 0
        self._parsed: dict[bytes, dict[str, Any]] = {}
        self._logs: dict[str, tuple[str, ...]] = {}
        self.processes = [Process(self, name) for name in "ABCD"[:processes]]

    # What happens

    def changed(self, new: str | None) -> None:
        """Note that an object came to be, or that one is gone."""
        if new is not None and new.startswith("m/"):
            manifest = self._manifest(new)
            self.published.append(Published(*(manifest[field] for field in Published._fields)))
            self._note_log(manifest)
        self._look()

    def arrive(self, which: int) -> None:
        """Let a late call arrive; one that is too late is dropped."""
        _, operation = self.late.pop(which % len(self.late))
        try:
            operation()
        except KeyExists:
            self.events.append("late, and too late")
        else:
            self.events.append("late, and done")

    # What must hold

    def check(self) -> None:
        """Check what must hold at every moment, and, where all rest, what must hold then."""
        assert not self.violations, self.violations
        if self._changes != self._checked:
            report = fsck(self.plain())
            assert not report.problems, report.problems
            self._checked = self._changes
        owners = [process for process in self.processes if process.believes_it_owns]
        assert len(owners) <= 1, owners

    def check_alive(self) -> None:
        """Check that a run alone can go on, and leaves no more garbage than what is retained."""
        for process in self.processes:
            process.crash()
        while self.late:
            self.arrive(0)
        self.check()
        last = self.processes[0]
        before = self.newest_log()
        last.do("open")
        assert last.log == before, (last.log, before)
        for _ in range(4):
            last.do("snapshot")
            assert last.session is not None
        self.check()
        manifests = [key for key in self.objects if key.startswith("m/")]
        assert len(manifests) == 3, manifests
        assert fsck(self.plain()).unused == (), fsck(self.plain()).unused
        assert sum(key.startswith("gc/") for key in self.objects) == 1

    def newest_log(self) -> tuple[str, ...]:
        """Give the log of the newest manifest, which is what counts."""
        numbers = self.retained()
        return self._logs[self._manifest(manifest_key(numbers[-1]))["attempt"]] if numbers else ()

    def log_of(self, attempt: str) -> tuple[str, ...]:
        """Give the log of a manifest that came to be."""
        return self._logs[attempt]

    def retained(self) -> list[int]:
        """Give the numbers of the manifests that count, by a reading of the names that owes nothing to malflow."""
        boundary = max((int(key[3:]) for key in self.objects if key.startswith("gc/")), default=0)
        numbers = sorted(int(key[2:22]) for key in self.objects if key.startswith("m/"))
        return [number for number in numbers if number >= boundary]

    def snapshots(self) -> list[int]:
        """Give the ids of the retained snapshots, the newest first."""
        return sorted({self._manifest(manifest_key(seq))["snapshot"] for seq in self.retained()} - {0}, reverse=True)

    def backend(self, store: MemoryStore) -> StoredBackend:
        """Give a backend above a view of the store."""
        options = {"job": "job", "retain": RETAIN, "growth": self.growth, "compression": "none"}
        return StoredBackend(store, self._environment, retry_for=timedelta(seconds=1), **options)

    def plain(self) -> StoredBackend:
        """Give a backend that stands still nowhere."""
        return self.backend(MemoryStore(self.objects))

    def violate(self, what: str) -> None:
        """Note that something is wrong, where it can't be raised."""
        self.violations.append(what)

    def _look(self) -> None:
        """Check what must hold after each change: whatever is retained is all there, and nothing that is void."""
        self._changes += 1
        before, epoch = None, 0
        for seq in self.retained():
            manifest = self._manifest(manifest_key(seq))
            if before is not None and seq != before + 1:
                self.violate(f"manifests {before + 1} to {seq - 1} are not there")
            if manifest["epoch"] < epoch:
                self.violate(f"manifest {seq} has epoch {manifest['epoch']}, after epoch {epoch}")
            before, epoch = seq, manifest["epoch"]
            lost = [entry["name"] for entry in manifest["files"] if entry["name"] not in self.objects]
            if lost:
                self.violate(f"manifest {seq} lacks {lost}")
            elif visible := self.void.intersection(self._logs[manifest["attempt"]]):
                self.violate(f"manifest {seq} has {visible} of a run that was fenced")

    def _note_log(self, manifest: dict[str, Any]) -> None:
        """Read the log of a new manifest."""
        if manifest["seq"] not in self.retained():
            return  # it came late, where everything is collected already
        log: tuple[str, ...] = ()
        if manifest["snapshot"]:
            backend = self.plain()
            archive = backend.archive()
            archive.find()
            try:
                states = load(archive, archive.manifest(manifest["seq"]), backend._codec, {"log": "log"}).states["log"]
                log = states.get(0, {}).get("log", ())
            except SnapshotError as error:
                self.violate(f"manifest {manifest['seq']} came to be, and can't be read: {error}")
        if log not in self.captured:
            self.violate(f"manifest {manifest['seq']} has a state that nobody had: {log}")
        self._logs[manifest["attempt"]] = log

    def _manifest(self, key: str) -> dict[str, Any]:
        data = self.objects[key]
        if data not in self._parsed:
            self._parsed[data] = json.loads(data)
        return self._parsed[data]


class RecordingStore(MemoryStore):
    """The store as somebody sees it whom nobody interrupts; the world learns of each change."""

    def __init__(self, world: World) -> None:
        super().__init__(world.objects)
        self._world = world

    def put_new(self, key: str, data: bytes) -> None:
        super().put_new(key, data)
        self._world.changed(key)

    def delete(self, key: str) -> None:
        super().delete(key)
        self._world.changed(None)


class SteppedStore(RecordingStore):
    """The store as a process sees it: each call waits for its turn, and may fail."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world)
        self._process = process

    def put_new(self, key: str, data: bytes) -> None:
        self._call("put", key, partial(super().put_new, key, data))

    def get(self, key: str, limit: int) -> bytes:
        data: bytes = self._call("get", key, partial(super().get, key, limit))
        return data

    def list(self, prefix: str) -> list[str]:
        keys: list[str] = self._call("list", prefix, partial(super().list, prefix))
        return keys

    def delete(self, key: str) -> None:
        self._call("delete", key, partial(super().delete, key))

    def _call(self, operation: str, key: str, act: Callable[[], Any]) -> Any:
        process, world = self._process, self._world
        fault = process.stepper.meet(Call(operation, key))
        world.trace.append((process.name, operation, key if fault is None else f"{key} {fault}"))
        changes = operation in ("put", "delete")
        if fault is not None:
            process.faults.append((fault, operation, key))
        match fault:
            case None:
                return act()
            case "error_before":
                raise Transient(f"{key} (injected)")
            case "refused":
                raise StoreError(f"{key} (injected)")
            case "crash_before":
                raise Crash(key)
            case "late" | "crash_late" if changes:
                world.late.append((key, act))
            case "error_after" | "crash_after":
                with suppress(KeyExists, KeyMissing):  # whatever the answer was, it is lost
                    act()
        if fault.startswith("crash"):
            raise Crash(key)
        raise UnknownOutcome(f"{key} (injected)") if operation == "put" else Transient(f"{key} (injected)")


class Process:
    """A run of the job: it opens it, and then commits a log that grows by a token with each snapshot."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.stepper = Stepper()
        self.session: Any = None
        self.log: tuple[str, ...] = ()
        self.faults: list[tuple[str, str, str]] = []
        self._world = world
        self._backend = world.backend(SteppedStore(world, self))
        self._action = ""
        self._tokens = count(1)
        self._kept: tuple[str, ...] = ()
        self._since = 0

    def __repr__(self) -> str:
        return f"{self.name}({self._action or 'idle'})"

    @property
    def believes_it_owns(self) -> bool:
        """Tell whether it rests, and would find out of no other run if it looked."""
        newest = max(self._world.retained(), default=0)
        return self.stepper.is_idle and self.session is not None and newest <= self.session._claim.head.seq

    def start(self, action: str, snapshot: int = 0) -> None:
        """Begin something, and stop before its first call; what needs a session opens the job where there is none."""
        if action in ("snapshot", "collect") and self.session is None:
            action = "open"
        self._action, self.faults = action, []
        work: Callable[[], Any] = self._collect
        if action in ("open", "restore"):
            self.session, self._since = None, len(self._world.published)
            start = Start(restore="latest" if action == "open" else snapshot)
            work = partial(self._backend.open, (STATE,), start)
        elif action == "snapshot":
            self.log = (*self.log, f"{self.name}{next(self._tokens)}")
            self._world.captured.add(self.log)
            work = self._snapshot
        self.stepper.start(work)
        self._settle()

    def step(self, calls: int = 1, fault: str | None = None) -> None:
        """Make some calls, the last of them with a fault."""
        self.stepper.step(calls, fault)
        self._settle()

    def run_to(self, operation: str, prefix: str) -> bool:
        """Go on until before a call, and tell whether it came to that."""
        while (call := self.stepper.waiting) is not None:
            if call.operation == operation and call.key.startswith(prefix):
                return True
            self.step()
        return False

    def finish(self) -> None:
        """Go on to the end of what was begun."""
        while not self.stepper.is_idle:
            self.step(1000)

    def do(self, action: str, snapshot: int = 0) -> None:
        """Do something from its beginning to its end."""
        self.start(action, snapshot)
        self.finish()

    def crash(self) -> None:
        """Die, wherever it stands."""
        self.stepper.kill()
        self._action, self.session = "", None

    def _snapshot(self) -> int:
        base = self.session.wants_base(1)
        delta = Delta({"log": self.log}, whole=base)
        made: int = self.session.commit(len(self.log), 1, (STATE,), [(0, STATE.name, delta, 1)]).result()
        return made

    def _collect(self) -> None:
        self.session._claim.collect(RETAIN)

    def _settle(self) -> None:
        """Judge how an action ended, if it has."""
        if not self._action or not self.stepper.is_idle:
            return
        action, self._action = self._action, ""
        error, world = self.stepper.error, self._world
        world.events.append(f"{action}: {type(error).__name__}")
        world.events.extend(f"{fault}, {operation} {key[:2]}" for fault, operation, key in self.faults)
        if isinstance(error, Crash):
            self.session = None
        elif action in ("open", "restore"):
            self._opened(error)
        elif error is None and action == "snapshot":
            self._committed()
        elif isinstance(error, FencedError):
            self._fenced()
        elif isinstance(error, CommitUnknown):
            self.session = None
            assert self.faults, f"{self.name} does not know how its commit ended, and nothing failed"
        elif isinstance(error, StoreError):
            assert self.faults, f"{self.name} failed though nothing did: {error}"
        elif error is not None:
            raise error
        if self.session is not None and action == "snapshot" and self.session._fatal is not None:
            assert isinstance(self.session._fatal, FencedError | CommitUnknown)
            self.session = None
        assert not world.violations, world.violations

    def _opened(self, error: BaseException | None) -> None:
        rivals = self._world.published[self._since :]
        if error is None:
            self.session, restored = self.stepper.result
            self.log = () if restored is None else restored.states["log"].get(0, {}).get("log", ())
            self._kept, head = self.log, self.session._claim.head
            self._since = len(self._world.published)
            assert self.log == self._world.log_of(head.attempt)
        elif isinstance(error, SnapshotCorrupt):
            raise AssertionError(f"{self.name} found damage, and there was none: {error}") from error
        elif isinstance(error, StoreError | CommitUnknown):
            assert self.faults, f"{self.name} could not open the job, and nothing failed: {error}"
        elif isinstance(error, SnapshotError):
            assert "has no snapshot" in str(error) or (rivals and "another run" in str(error)), error
        else:
            raise error

    def _committed(self) -> None:
        """A commit that returned is one that counted: when it came to be, nobody had claimed the job since."""
        head, published = self.session._claim.head, self._world.published
        at = max(index for index, it in enumerate(published) if (it.seq, it.attempt) == (head.seq, head.attempt))
        later = [it for it in published[:at] if it.seq == it.epoch > head.epoch]
        assert not later, f"{self.name} committed {head.seq} after {later} had claimed the job"
        assert self._world.log_of(head.attempt) == self.log
        self._kept = self.log

    def _fenced(self) -> None:
        head = self.session._claim.head
        rivals = [it for it in self._world.published if it.runner != head.runner and it.epoch > head.epoch]
        assert rivals, f"{self.name} was fenced, and nobody else was there"
        self.session = None
        in_doubt = any(operation == "put" and key.startswith("m/") for _, operation, key in self.faults)
        if not in_doubt:
            self._world.void.update(self.log[len(self._kept) :])
            self._world._look()


class SchedulerMachine(RuleBasedStateMachine):
    """Whatever two runs do to one job, and however it is interleaved, all that `World` demands holds."""

    processes = 2
    actors = strategies.integers(0, processes - 1)

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.processes)

    @rule(actor=actors, action=strategies.sampled_from(["snapshot", "open", "collect", "restore"]), back=actors)
    def start(self, actor: int, action: str, back: int) -> None:
        process, known = self.world.processes[actor], self.world.snapshots()
        if not process.stepper.is_idle:
            process.step()
        elif action == "restore" and known:
            process.start(action, known[back % len(known)])
        elif action != "restore":
            process.start(action)

    @rule(actor=actors, calls=strategies.integers(1, 6))
    def step(self, actor: int, calls: int) -> None:
        if not self.world.processes[actor].stepper.is_idle:
            self.world.processes[actor].step(calls)

    @rule(actor=actors, point=strategies.sampled_from(POINTS))
    def run_to(self, actor: int, point: tuple[str, str]) -> None:
        self.world.processes[actor].run_to(*point)

    @rule(actor=actors)
    def finish(self, actor: int) -> None:
        self.world.processes[actor].finish()

    @rule(actor=actors, action=strategies.sampled_from(["snapshot", "open"]), times=strategies.integers(1, 4))
    def do(self, actor: int, action: str, times: int) -> None:
        process = self.world.processes[actor]
        process.finish()
        for _ in range(times if action == "snapshot" else 1):
            process.do(action)

    @rule(actor=actors, calls=strategies.integers(1, 3), fault=strategies.sampled_from(FAULTS))
    def fail(self, actor: int, calls: int, fault: str) -> None:
        if not self.world.processes[actor].stepper.is_idle:
            self.world.processes[actor].step(calls, fault)

    @rule(actor=actors)
    def crash(self, actor: int) -> None:
        self.world.processes[actor].crash()

    @precondition(lambda self: self.world.late)
    @rule(which=strategies.integers(0, 3))
    def late(self, which: int) -> None:
        self.world.arrive(which)

    @invariant()
    def holds(self) -> None:
        self.world.check()
        for what in self.world.events:
            event(what)
        self.world.events.clear()

    def teardown(self) -> None:
        try:
            if not self.world.violations:
                self.world.check_alive()
        finally:
            for process in self.world.processes:
                process.crash()
