"""Two runs of one job, and their collections, interleaved by a test at every call of the store."""

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
from malflow.snapshot.persistence import RestoreOptions
from malflow.snapshot.protocol.manifest import manifest_key
from malflow.snapshot.restore import load
from malflow.states.keyed import Delta
from malflow.states.kinds import StateKind, StateSpec
from malflow.store.contract import KeyExists, KeyMissing, Transient, UnknownOutcome
from tests.kit.faulty_store import Crash
from tests.kit.memory_store import MemoryStore
from tests.recovery.scenario import StoredBackend, Violation, environment

__all__ = ["FAULTS", "POINTS", "Call", "CalmScheduler", "Process", "SchedulerMachine", "Stepper", "World", "interleave"]

FAULTS = ("error_before", "error_after", "late", "refused", "crash_before", "crash_after", "crash_late")
"""What can happen to one call; the late ones are done when the test says so."""

POINTS = (("put", "m/"), ("list", "d/"), ("put", "gc/"), ("delete", "d/"), ("get", "m/"), ("", ""))
"""Calls that a run can be left standing before; the last one is each."""

RETAIN = 1
STATE = StateSpec("log", StateKind.STATEFUL_MAP, 1, None)


class Call(NamedTuple):
    """One call of the store, as a process is about to make it."""

    operation: str
    key: str


def require(invariant: str, holds: object, reason: object) -> None:
    """Raise a violation where something does not hold."""
    if not holds:
        raise Violation(invariant, str(reason))


class Stepper:
    """Work on a thread of its own, which stands still before each call until it is told to make some more.

    Only one of the threads ever runs, the test's among them: nothing depends on the scheduler of the machine.
    """

    def __init__(self) -> None:
        self.waiting: Call | None = None
        self.error: BaseException | None = None
        self.result: Any = None
        self._work: Callable[[], Any] | None = None
        self._left, self._fault, self._killed = 0, "", False
        self._go, self._still = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._still.acquire()
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        return self._work is None

    def start(self, work: Callable[[], Any]) -> None:
        """Work until the first call."""
        self._work, self.error, self.result, self._killed = work, None, None, False
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()
        self.step(0)

    def step(self, calls: int = 1, fault: str = "") -> None:
        """Make some calls, the last of them with a fault, and stop before the next one."""
        self._left, self._fault = calls, fault
        self._go.release()
        self._still.acquire()

    def kill(self) -> None:
        """End the work as a crash does it."""
        if not self.is_idle:
            self._killed = True
            self.step()

    def close(self) -> None:
        """End the thread."""
        self.kill()
        if self._thread is not None:
            self._go.release()
            self._thread.join()

    def meet(self, call: Call) -> str:
        """Stand before a call, on the thread that works; return the fault that it meets."""
        if self._left == 0 and not self._killed:
            self.waiting = call
            self._still.release()
            self._go.acquire()
            self.waiting = None
        if self._killed:
            raise Crash("killed")
        self._left -= 1
        return "" if self._left else self._fault

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            if self._work is None:
                return
            try:
                self.result = self._work()
            except BaseException as error:  # noqa: BLE001 - a crash, too, is told to the test
                self.error = error
            self._work = None
            self._still.release()


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
        self.violations: list[Violation] = []
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
        """Apply a late call; one that is too late is dropped."""
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
        self.blame()
        if self._changes != self._checked:
            report = fsck(self.plain())
            require("fsck", not report.problems, report.problems)
            self._checked = self._changes
        owners = [process for process in self.processes if process.believes_it_owns]
        require("claimant", len(owners) <= 1, f"{owners} both think that the job is theirs")

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
        require("state", last.log == before, f"{before} becomes {last.log}")
        for _ in range(3):
            last.do("snapshot")
            require("liveness", last.session is not None, "a run that is alone can't commit")
        self.check()
        garbage = [key for key in self.objects if key[:2] in ("m/", "gc")]
        require("collection", len(garbage) == 3 + 1, garbage)
        unused = fsck(self.plain()).unused
        require("collection", not unused, unused)

    def newest_log(self) -> tuple[str, ...]:
        """Return the log of the newest manifest, which is authoritative."""
        numbers = self.retained()
        return self._logs[self._manifest(manifest_key(numbers[-1]))["attempt"]] if numbers else ()

    def has_counted(self, log: tuple[str, ...]) -> bool:
        """Whether a manifest of this log was the newest at some moment."""
        return log in self._logs.values()

    def log_of(self, attempt: str) -> tuple[str, ...]:
        """Return the log of a manifest that was written."""
        return self._logs[attempt]

    def retained(self) -> list[int]:
        """Return the numbers of the valid manifests, read from their names without malflow's code."""
        boundary = max((int(key[3:]) for key in self.objects if key.startswith("gc/")), default=0)
        numbers = sorted(int(key[2:22]) for key in self.objects if key.startswith("m/"))
        return [number for number in numbers if number >= boundary]

    def snapshots(self) -> list[int]:
        """Return the ids of the retained snapshots, the newest first."""
        return sorted({self._manifest(manifest_key(seq))["snapshot"] for seq in self.retained()} - {0}, reverse=True)

    def backend(self, store: MemoryStore) -> StoredBackend:
        """Return a backend on a view of the store."""
        options = {"job": "job", "retain": RETAIN, "growth": self.growth, "compression": "none"}
        return StoredBackend(store, self._environment, retry_for=timedelta(seconds=1), **options)

    def plain(self) -> StoredBackend:
        """Return a backend that never pauses."""
        return self.backend(MemoryStore(self.objects))

    def close(self) -> None:
        """End the threads."""
        for process in self.processes:
            process.stepper.close()

    def blame(self) -> None:
        """Raise what was found while it could not be raised."""
        if self.violations:
            raise self.violations[0]

    def _violate(self, invariant: str, reason: str) -> None:
        """Note that something is wrong, on the thread of a process, which may catch what is raised."""
        self.violations.append(Violation(invariant, reason))

    def _look(self) -> None:
        """Check what must hold after each change: whatever is retained is all there, and nothing that is void."""
        self._changes += 1
        before, epoch = None, 0
        for seq in self.retained():
            manifest = self._manifest(manifest_key(seq))
            if before is not None and seq != before + 1:
                self._violate("chain", f"manifests {before + 1} to {seq - 1} are not there")
            if manifest["epoch"] < epoch:
                self._violate("chain", f"manifest {seq} has epoch {manifest['epoch']}, after epoch {epoch}")
            before, epoch = seq, manifest["epoch"]
            lost = [entry["name"] for entry in manifest["files"] if entry["name"] not in self.objects]
            if lost:
                self._violate("fsck", f"manifest {seq} lacks {lost}")
            elif visible := self.void.intersection(self._logs[manifest["attempt"]]):
                self._violate("claimant", f"manifest {seq} has {visible} of a run that was fenced")

    def _note_log(self, manifest: dict[str, Any]) -> None:
        """Read the log of a new manifest."""
        if manifest["seq"] not in self.retained():
            return  # it came late, where everything is collected already
        log: tuple[str, ...] = ()
        if manifest["snapshot"]:
            backend = self.plain()
            manifest_log = backend.manifest_log()
            manifest_log.find()
            try:
                states = load(
                    manifest_log, manifest_log.manifest(manifest["seq"]), backend._codec, {"log": "log"}
                ).states["log"]
                log = states.get(0, {}).get("log", ())
            except SnapshotError as error:
                self._violate("fsck", f"manifest {manifest['seq']} came to be, and can't be read: {error}")
        if log not in self.captured:
            self._violate("state", f"manifest {manifest['seq']} has a state that nobody had: {log}")
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
        world.trace.append((process.name, operation, f"{key} {fault}"))
        changes = operation in ("put", "delete")
        if fault:
            process.faults.append((fault, operation, key))
        match fault:
            case "":
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
        """Whether it is idle, and would find no other run that has claimed the job."""
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
            start = RestoreOptions(restore="latest" if action == "open" else snapshot)
            work = partial(self._backend.open, (STATE,), start)
        elif action == "snapshot":
            self.log = (*self.log, f"{self.name}{next(self._tokens)}")
            self._world.captured.add(self.log)
            work = self._snapshot
        self.stepper.start(work)
        self._settle()

    def step(self, calls: int = 1, fault: str = "") -> None:
        """Make some calls, the last of them with a fault."""
        self.stepper.step(calls, fault)
        self._settle()

    def run_to(self, operation: str, prefix: str) -> bool:
        """Continue until just before a call, and return whether that call was reached."""
        while (call := self.stepper.waiting) is not None:
            if operation in ("", call.operation) and call.key.startswith(prefix):
                return True
            self.step()
        return False

    def finish(self) -> None:
        """Continue to the end of what was begun."""
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
        base = self.session.needs_full_snapshot(1)
        delta = Delta({"log": self.log}, whole=base)
        made: int = self.session.commit(len(self.log), 1, (STATE,), [(0, STATE.name, delta, 1)]).result()
        return made

    def _collect(self) -> None:
        self.session._claim.delete_unreferenced(RETAIN)

    def _settle(self) -> None:
        """Judge how an action ended, if it has."""
        if not self._action or not self.stepper.is_idle:
            return
        action, self._action = self._action, ""
        self._world.blame()
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
            require("liveness", self.faults, f"{self.name} does not know how its commit ended, and nothing failed")
        elif isinstance(error, StoreError):
            require("liveness", self.faults, f"{self.name} failed, and the store did not: {error}")
        elif error is not None:
            raise error
        if self.session is not None and action == "snapshot" and self.session._fatal is not None:
            require("liveness", isinstance(self.session._fatal, FencedError | CommitUnknown), self.session._fatal)
            self.session = None

    def _opened(self, error: BaseException | None) -> None:
        rivals = self._world.published[self._since :]
        if error is None:
            self.session, restored = self.stepper.result
            self.log = () if restored is None else restored.states["log"].get(0, {}).get("log", ())
            self._kept, head = self.log, self.session._claim.head
            self._since = len(self._world.published)
            require("state", self.log == self._world.log_of(head.attempt), f"{self.name} starts with {self.log}")
        elif isinstance(error, SnapshotCorrupt):
            raise Violation("fsck", f"{self.name} found damage, and there was none: {error}") from error
        elif isinstance(error, StoreError | CommitUnknown):
            require("liveness", self.faults, f"{self.name} could not start, and the store did not fail: {error}")
        elif isinstance(error, SnapshotError):
            is_told = "has no snapshot" in str(error) or (rivals and "another run" in str(error))
            require("liveness", is_told, f"{self.name} could not start: {error}")
        else:
            raise error

    def _committed(self) -> None:
        """A commit that returned is one that counted: when it came to be, nobody had claimed the job since."""
        head, published = self.session._claim.head, self._world.published
        at = max(index for index, it in enumerate(published) if (it.seq, it.attempt) == (head.seq, head.attempt))
        later = [it for it in published[:at] if it.seq == it.epoch > head.epoch]
        require("claimant", not later, f"{self.name} committed {head.seq} after {later} had claimed the job")
        require("state", self._world.log_of(head.attempt) == self.log, f"{self.name} committed something else")
        self._kept = self.log

    def _fenced(self) -> None:
        head = self.session._claim.head
        rivals = [it for it in self._world.published if it.runner != head.runner and it.epoch > head.epoch]
        require("liveness", rivals, f"{self.name} was fenced, and nobody else was there")
        self.session = None
        if not self._world.has_counted(self.log):  # else it was fenced after the commit, and before it knew of it
            self._world.void.update(self.log[len(self._kept) :])
            self._world._look()


class Agenda:
    """Some actions of a process, to be done up to one of their calls, and then to their end."""

    def __init__(self, process: Process, actions: tuple[str, ...], snapshot: int = 0) -> None:
        self._process, self._actions, self._snapshot = process, list(actions), snapshot

    def go_on(self, calls: int = 1 << 30) -> bool:
        """Make some calls, and return whether there are more."""
        process = self._process
        while calls or process.stepper.is_idle:
            if not process.stepper.is_idle:
                process.step()
                calls -= 1
            elif self._actions and (self._actions[0] != "snapshot" or process.session is not None):
                process.start(self._actions.pop(0), self._snapshot)
            else:
                return False
        return True


def interleave(old: tuple[str, ...], new: tuple[str, ...], *, before: int, most: int, old_first: bool = True) -> int:
    """Pause one process before each of its calls, then the other before each of its own, and continue.

    Args:
        old: what the process does that has the job, if any has.
        new: what the other one does.
        before: how many snapshots there are already; with none, there is not even a job.
        most: before how many calls the second one stands still; after these it continues to its end.
        old_first: whether the old process is the first to stand still.

    Returns:
        How many ways there were.
    """
    ways = 0
    for first_calls in count():
        for second_calls in [*range(most), 1 << 30]:
            try:
                is_within, is_inside = _cross(old, new, first_calls, second_calls, before=before, old_first=old_first)
            except Violation as error:
                error.add_note(f"{old} and {new}: {first_calls} and then {second_calls} calls, old first: {old_first}")
                raise
            ways += 1
            if not is_inside:
                break
        if not is_within:
            break
    return ways


def _cross(
    old: tuple[str, ...], new: tuple[str, ...], first_calls: int, second_calls: int, *, before: int, old_first: bool
) -> tuple[bool, bool]:
    """Interleave in one way, and return whether each was within its actions where it stood still."""
    world = World(growth=0.01)  # every other snapshot is a base
    try:
        if before:
            Agenda(world.processes[0], ("open", *["snapshot"] * before)).go_on()
        oldest = min(world.snapshots(), default=0)
        agendas = [Agenda(*it, oldest) for it in zip(world.processes, (old, new), strict=True)]
        first, second = agendas if old_first else reversed(agendas)
        within = first.go_on(first_calls), second.go_on(second_calls)
        first.go_on()
        second.go_on()
        world.check()
        world.check_alive()
    finally:
        world.close()
    return within


class CalmScheduler(RuleBasedStateMachine):
    """Whatever two runs do to one job, and however it is interleaved, all that `World` demands holds."""

    processes = 2
    actors = strategies.integers(0, processes - 1)
    actions = strategies.sampled_from(["snapshot", "open", "collect", "restore"])

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.processes)

    @rule(actor=actors, action=actions, back=actors, point=strategies.sampled_from(POINTS))
    def start(self, actor: int, action: str, back: int, point: tuple[str, str]) -> None:
        process, known = self.world.processes[actor], self.world.snapshots()
        process.finish()
        process.start(action if known else "open", known[back % len(known)] if known else 0)
        process.run_to(*point)

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

    @rule(actor=actors, times=strategies.integers(0, 3))
    def go_on(self, actor: int, times: int) -> None:
        process = self.world.processes[actor]
        process.finish()
        for action in ("open", *["snapshot"] * times):
            process.do(action)

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
            self.world.close()


class SchedulerMachine(CalmScheduler):
    """The same where the store fails, and processes die."""

    @rule(actor=CalmScheduler.actors, calls=strategies.integers(1, 3), fault=strategies.sampled_from(FAULTS))
    def fail(self, actor: int, calls: int, fault: str) -> None:
        if not self.world.processes[actor].stepper.is_idle:
            self.world.processes[actor].step(calls, fault)

    @rule(actor=CalmScheduler.actors)
    def crash(self, actor: int) -> None:
        self.world.processes[actor].crash()

    @precondition(lambda self: self.world.late)
    @rule(which=strategies.integers(0, 3))
    def late(self, which: int) -> None:
        self.world.arrive(which)
