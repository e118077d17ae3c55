"""A job whose only truth is a fold over its records, and what must hold whatever happens to its runs.

    world = World(MemoryStore().view, faults=Faults(Fault("crash_after", "put_new", "manifest", 1)))
    run = world.start()                     # claims the job; look at run.ended
    run.process(5)                          # up to record 5
    run.snapshot()                          # "committed", "failed", "crashed", "unknown" or "fenced"
    world.check()                           # every invariant that can be checked now; raises Violation
    world.finish()                          # no more faults: the input must be finished, and old files collected

Two engines run it: `Toy` makes deltas by hand, `Real` is malflow's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count, pairwise
from typing import Any, NamedTuple, Protocol

from malflow.engine.state_specs import states_of
from malflow.errors import CommitUnknown, FencedError, SnapshotCorrupt, SnapshotError, StoreError
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, Persistence, fsck
from malflow.snapshot.executors import InlineExecutor
from malflow.snapshot.persistence import RestoredState, RestoreOptions, Session
from malflow.snapshot.protocol.manifest import Manifest
from malflow.states.keyed import Delta
from malflow.states.kinds import StateKind, StateSpec
from malflow.store.contract import Store
from malflow.store.retry import SystemContext
from malflow.testing import PAUSE, ScriptedSource
from malflow.testing.driven import DrivenRun
from malflow.testing.trial import built
from tests.kit.faulty_store import Crash, Faults, FaultyStore
from tests.kit.memory_store import MemoryStore

__all__ = [
    "RECORDS",
    "Observed",
    "Process",
    "Real",
    "Record",
    "StoredBackend",
    "Toy",
    "Violation",
    "World",
    "environment",
    "fold",
]


class Violation(AssertionError):
    """Something that must hold does not.

    Attributes:
        invariant: which: "state", "floor", "fsck", "chain", "claimant", "liveness" or "collection".
    """

    def __init__(self, invariant: str, reason: str) -> None:
        super().__init__(f"{invariant}: {reason}")
        self.invariant = invariant


# The model


class Record(NamedTuple):
    """A change of a key; without an amount it drops the key."""

    position: int
    key: str
    amount: int | None


def _count(state: tuple[int, int] | None, record: Record) -> tuple[int, int] | None:
    """Keep a sum, and where it began."""
    if record.amount is None:
        return None
    return (record.amount, record.position) if state is None else (state[0] + record.amount, state[1])


def _odd(state: tuple[int, int] | None, record: Record) -> tuple[int, int] | None:
    """Keep a key after every other record."""
    return (0, record.position) if state is None else None


States = dict[str, dict[str, tuple[int, int]]]

OPERATORS: dict[str, Callable[[tuple[int, int] | None, Record], tuple[int, int] | None]] = {
    "count": _count,
    "odd": _odd,
}

_KEYS = "aabbcba"
RECORDS = tuple(
    Record(at, _KEYS[at % len(_KEYS)] if at % 7 else "é", None if at % 4 == 3 else 1 + at % 3) for at in range(40)
)
"""Few keys, each dropped and made again many times."""

WHOLE = (12, 38)
"""Records after which the next delta is whole, as where a program has looked at all of its states."""


def fold(records: Sequence[Record]) -> States:
    """Do what the job does: keys are in the order in which they were made."""
    states: States = {name: {} for name in OPERATORS}
    for record in records:
        for name, function in OPERATORS.items():
            new = function(states[name].get(record.key), record)
            if new is None:
                states[name].pop(record.key, None)
            else:
                states[name][record.key] = new
    return states


# The engines


class Observed(NamedTuple):
    """The content of a snapshot: its position, and its differences from the model; there should be none."""

    snapshot: int
    position: int
    differs: str


class Engine(Protocol):
    """Runs the job."""

    states: tuple[StateSpec, ...]

    def begin(self, backend: Persistence, start: RestoreOptions, parallelism: int) -> EngineRun:
        """Claim the job, and continue from what it gives."""

    def observe(self, restored: RestoredState | None) -> Observed:
        """Compare what was restored with the model."""


class EngineRun(Protocol):
    """One execution."""

    position: int
    parallelism: int

    def process(self, until: int) -> None:
        """Process records up to a position."""

    def commit(self) -> Future[int]:
        """Take a snapshot."""

    def rescale(self, parallelism: int) -> None:
        """Continue with another number of workers."""


def _place(key: str, parallelism: int) -> int:
    return sum(key.encode()) % parallelism


class _Kept:
    """The states of one operator on one worker, and what changed: it is no `KeyedState`, to be another opinion."""

    def __init__(self) -> None:
        self.live: dict[str, Any] = {}
        self._dirty: set[str] = set()
        self._made: dict[str, None] = {}
        self.whole = True

    def put(self, key: str, state: Any) -> None:
        self._dirty.add(key)
        if state is None:
            self.live.pop(key, None)
            self._made.pop(key, None)
            return
        if key not in self.live:
            self._made[key] = None
        self.live[key] = state

    def delta(self, *, whole: bool) -> Delta:
        dirty, made = self._dirty, self._made
        whole, self.whole, self._dirty, self._made = whole or self.whole, False, set(), {}
        if whole:
            return Delta(dict(self.live), whole=True)
        changed = {key: self.live[key] for key in sorted(dirty) if key in self.live and key not in made}
        changed |= {key: self.live[key] for key in made}
        return Delta(changed, frozenset(dirty - self.live.keys()), len(made))


class Toy:
    """An engine in a few lines, which makes its deltas itself. Its snapshots are compared with the order of keys."""

    states = (
        StateSpec("source", StateKind.SOURCE, 1, "place"),
        *(StateSpec(name, StateKind.STATEFUL_MAP, 1, "place") for name in OPERATORS),
    )

    def __init__(self, records: Sequence[Record] = RECORDS) -> None:
        self.records = records

    def begin(self, backend: Persistence, start: RestoreOptions, parallelism: int) -> ToyRun:
        return ToyRun(self, backend, start, parallelism)

    def observe(self, restored: RestoredState | None) -> Observed:
        if restored is None:
            return Observed(0, 0, "")
        parallelism = restored.parallelism
        positions = restored.states["source"].get(_place("all", parallelism), {})
        position = positions.get("all", 0)
        expected = self.expected(position, parallelism)
        found = {name: {w: [*held.items()] for w, held in by.items()} for name, by in restored.states.items()}
        for name, by_worker in expected.items():
            for worker, states in by_worker.items():
                held = found[name].pop(worker, [])
                if held != states:
                    return Observed(restored.snapshot, position, f"{name} on {worker} is {held}, not {states}")
        left = {name: by for name, by_worker in found.items() for by in by_worker.values() if by}
        differs = f"there is more: {left}" if left else ""
        if restored.tick != position:
            differs = f"the tick is {restored.tick}, not {position}"
        return Observed(restored.snapshot, position, differs)

    def expected(self, position: int, parallelism: int) -> dict[str, dict[int, list[tuple[str, Any]]]]:
        """Return the expected state: the items in order, by state and worker."""
        states: dict[str, dict[str, Any]] = {"source": {"all": position} if position else {}, **self._compact(position)}
        return {
            name: {
                worker: [item for item in held.items() if _place(item[0], parallelism) == worker]
                for worker in range(parallelism)
            }
            for name, held in states.items()
        }

    def _compact(self, position: int) -> States:
        return _folded(tuple(self.records), position)


@cache
def _folded(records: tuple[Record, ...], position: int) -> States:
    return fold(records[:position])


class ToyRun:
    """Workers as lists of dicts."""

    def __init__(self, engine: Toy, backend: Persistence, start: RestoreOptions, parallelism: int) -> None:
        self._engine = engine
        self.session, restored = backend.open(engine.states, start)
        self.position = engine.observe(restored).position
        self.parallelism = parallelism
        held = {} if restored is None else restored.states
        self._fill({name: [item for by in held.get(name, {}).values() for item in by.items()] for name in held})
        if restored is not None and restored.parallelism == parallelism:
            for kept in self._all():
                kept.delta(whole=True)

    def process(self, until: int) -> None:
        while self.position < until:
            record = self._engine.records[self.position]
            worker = self._workers[_place(record.key, self.parallelism)]
            for name, function in OPERATORS.items():
                worker[name].put(record.key, function(worker[name].live.get(record.key), record))
                worker[name].whole |= self.position in WHOLE
            self.position += 1
            self._workers[_place("all", self.parallelism)]["source"].put("all", self.position)

    def commit(self) -> Future[int]:
        whole = self.session.needs_full_snapshot(self.parallelism)
        deltas = []
        for worker, by_name in enumerate(self._workers):
            for name, kept in by_name.items():
                if delta := kept.delta(whole=whole):
                    deltas.append((worker, name, delta, len(kept.live)))
        return self.session.commit(self.position, self.parallelism, self._engine.states, deltas)

    def rescale(self, parallelism: int) -> None:
        items = {name: [i for w in self._workers for i in w[name].live.items()] for name in self._workers[0]}
        self.parallelism = parallelism
        self._fill(items)

    def _fill(self, items: Mapping[str, list[tuple[str, Any]]]) -> None:
        names = [spec.name for spec in self._engine.states]
        self._workers = [{name: _Kept() for name in names} for _ in range(self.parallelism)]
        for name, held in items.items():
            for key, state in sorted(held, key=lambda item: item[1][1]) if name in OPERATORS else held:
                self._workers[_place(key, self.parallelism)][name].put(key, state)

    def _all(self) -> Iterator[_Kept]:
        return (kept for worker in self._workers for kept in worker.values())


class Real:
    """The engine: a scripted source, an exchange, a `stateful_map` and a `stateful_op`, one record a tick."""

    def __init__(self, records: Sequence[Record] = RECORDS) -> None:
        self.records = records
        self._script = [item for record in records for item in (record, PAUSE)][:-1]
        self.program = built(self._build)
        self.states = states_of(self.program)

    def begin(self, backend: Persistence, start: RestoreOptions, parallelism: int) -> RealRun:
        return RealRun(self, backend, start, parallelism)

    def observe(self, restored: RestoredState | None) -> Observed:
        if restored is None:
            return Observed(0, 0, "")
        states = restored.states
        merged = {name: {key: it for held in states[name].values() for key, it in held.items()} for name in OPERATORS}
        at = next((at for held in states["records"].values() for at in held.values()), 0)
        position = sum(item is not PAUSE for item in self._script[:at])
        differs = ""
        for name, expected in _folded(tuple(self.records), position).items():
            if sum(map(len, states[name].values())) != len(merged[name]) or merged[name] != expected:
                differs = f"{name} is {states[name]}, not {expected}"
        return Observed(restored.snapshot, position, differs)

    def _build(self, provider: Any) -> None:
        records = provider.new_stream().source("records", ScriptedSource(self._script))
        keyed = records.key_distribute("by key", lambda msg: msg.value.key)
        counted = keyed.stateful_map("count", lambda key, record, state: (record, _count(state, record)))

        def toggle(msg: Any, state: Any, output: Any) -> Any:
            return _odd(state, msg.value)

        counted.stateful_op("odd", toggle).sink("out", VecSink())


class _Peek:
    """A persistence that remembers what it gave."""

    is_enabled = True

    def __init__(self, persistence: Persistence) -> None:
        self._persistence = persistence
        self.restored: RestoredState | None = None

    def open(self, states: Sequence[StateSpec], start: RestoreOptions) -> tuple[Session, RestoredState | None]:
        session, self.restored = self._persistence.open(states, start)
        return session, self.restored


class RealRun:
    """A `DrivenRun`."""

    def __init__(self, engine: Real, backend: Persistence, start: RestoreOptions, parallelism: int) -> None:
        peek = _Peek(backend)
        self._run = DrivenRun(engine.program, parallelism=parallelism, persistence=peek, start=start)
        self._run.resume()
        self.position = engine.observe(peek.restored).position

    @property
    def parallelism(self) -> int:
        return self._run.parallelism

    def process(self, until: int) -> None:
        while self.position < until:
            self.position += self._run.tick()

    def commit(self) -> Future[int]:
        future = self._run.snapshots.take()
        assert future is not None
        return future

    def rescale(self, parallelism: int) -> None:
        self._run.rescale(parallelism)


# The runs


class StoredBackend(FsspecBackend):
    """A backend above a store of the test's, with the test's clock, that writes its snapshots at once."""

    def __init__(self, store: Store, environment: SystemContext, **options: Any) -> None:
        super().__init__("memory://test", **options)
        self._test_store = store
        self._environment = environment
        self._executor = InlineExecutor

    def _store(self, *, exclusive: bool) -> Store:
        return self._test_store


def environment(first: int = 0) -> SystemContext:
    """Make an environment that does the same every time: tokens are numbers, and time passes when someone sleeps."""
    numbers, clock = count(first + 1), [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    return SystemContext(
        token=lambda: f"{next(numbers):016x}",
        monotonic=lambda: clock[0],
        sleep=sleep,
        now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        jitter=lambda: 0.5,
        process=lambda: 1,
    )


class Process:
    """A run as a process has it; a crash, or an error that ends the run, ends it.

    Attributes:
        number: which start of the job this was.
        run: the engine's run; None if the start failed.
        ended: why it is no longer there: "crashed", "unknown", "fenced", "failed" or "dropped"; empty while it is.
    """

    def __init__(self, world: World, number: int, parallelism: int, start: RestoreOptions) -> None:
        self.number = number
        self.run: EngineRun | None = None
        self.ended = ""
        self._world = world
        world.starting(start)
        with_errors = self._guarded(lambda: world.engine.begin(world.backend(), start, parallelism))
        self.ended, self.run = with_errors
        if not self.ended:
            world.started(self)

    @property
    def is_alive(self) -> bool:
        return not self.ended

    @property
    def position(self) -> int:
        assert self.run is not None
        return self.run.position

    def process(self, until: int) -> None:
        """Process records up to a position."""
        assert self.run is not None
        self.run.process(min(until, len(self._world.engine.records)))
        self._world.ceiling = max(self._world.ceiling, self.position)

    def snapshot(self) -> str:
        """Take a snapshot, and return the outcome: "committed", "failed", or why the run ended."""
        assert self.run is not None
        assert self.is_alive
        position, run = self.position, self.run
        problem, _ = self._guarded(lambda: run.commit().result())
        if not problem:
            self._world.committed(self, position)
            return "committed"
        if problem == "failed":
            self._world.failures += 1
        else:
            self.ended = problem
        return problem

    def rescale(self, parallelism: int) -> None:
        """Continue with another number of workers."""
        assert self.run is not None
        self.run.rescale(parallelism)

    def drop(self) -> None:
        """Drop the process, as SIGKILL would."""
        self.ended = self.ended or "dropped"

    def _guarded(self, action: Callable[[], Any]) -> tuple[str, Any]:
        """Do something, and check that what it raises has a cause; anything but what may be raised goes on."""
        fired = len(self._world.faults.fired)
        try:
            return "", action()
        except Crash:
            return "crashed", None
        except FencedError as error:
            if self._world.attempts == self.number:
                raise Violation(
                    "liveness", f"run {self.number} was fenced, and no other has come since: {error}"
                ) from error
            return "fenced", None
        except (CommitUnknown, StoreError) as error:
            if len(self._world.faults.fired) == fired:
                raise Violation("liveness", f"nothing was wrong with the store, and yet: {error}") from error
            return "unknown" if isinstance(error, CommitUnknown) else "failed", None
        except SnapshotCorrupt as error:
            if self._world.bad:
                raise
            raise Violation("state", f"nothing was damaged, and yet: {error}") from error
        except SnapshotError as error:
            if any(other.is_alive and other is not self for other in self._world.processes):
                return "fenced", None
            raise Violation("liveness", f"nobody else is there, and yet: {error}") from error

    def __repr__(self) -> str:
        return f"Process({self.number}{', ' + self.ended if self.ended else ''})"


@dataclass
class World:
    """A job, its runs, and what is known of it for certain.

    Attributes:
        place: gives a new instance of the store, as each process has its own; faults are put above it here.
        engine: what runs the job.
        faults: what goes wrong.
        retain, growth: options of the backend.
        floor: the position that no recovery may be before.
        ceiling: the last position that any run came to.
        attempts: how many starts there were.
        claimant: the last one that succeeded.
        bad: the objects that the test has damaged; while there are any, recovery may refuse, or go back.
        before: called before each call of the store.
        first_token: where the tokens begin.
        known: what has been checked; worlds of one kind may share it, so that nothing is checked twice.
    """

    place: Callable[[], Store]
    engine: Toy | Real = field(default_factory=Toy)
    faults: Faults = field(default_factory=Faults)
    retain: int = 2
    growth: float = 1.0
    compression: str = "none"
    floor: int = 0
    ceiling: int = 0
    attempts: int = 0
    claimant: int = 0
    commits: int = 0
    failures: int = 0
    bad: set[str] = field(default_factory=set)
    processes: list[Process] = field(default_factory=list)
    before: Callable[[Any], object] | None = None
    first_token: int = 0
    known: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._environment = environment(self.first_token)
        self._may_go_back = False
        self._exact: set[int] = set()

    def backend(self, store: Store | None = None) -> StoredBackend:
        """Make a backend above the place with its faults, or above another store."""
        here = FaultyStore(self.place(), self.faults, before=self.before) if store is None else store
        return StoredBackend(
            here,
            self._environment if store is None else environment(1 << 31),
            retain=self.retain,
            growth=self.growth,
            compression=self.compression,
            retry_for=timedelta(seconds=0.5),
            tolerate_failures_for=timedelta(days=1),
        )

    def start(self, parallelism: int = 1, start: RestoreOptions | None = None) -> Process:
        """Start a run."""
        self.attempts += 1
        process = Process(self, self.attempts, parallelism, start or RestoreOptions())
        self.processes.append(process)
        return process

    def starting(self, start: RestoreOptions) -> None:
        """Note that a run may go back from now on, if it is told to."""
        if start.restore != "latest":
            self._may_go_back = True  # also when the start fails: its claim may be there, or come late
            self.floor = 0 if start.restore is None else min(self.floor, self.recover(start).position)

    def started(self, process: Process) -> None:
        """Note that a run has claimed the job."""
        self.claimant = process.number
        self._may_go_back = False
        self._require_floor("a run starts", process.position)

    def committed(self, process: Process, position: int) -> None:
        """Note that a run was told that its snapshot is there."""
        if self.claimant > process.number:
            raise Violation("claimant", f"run {process.number} commits after run {self.claimant} has claimed the job")
        self.commits += 1
        self._require_floor("a snapshot", position)
        self.floor = position

    def copy(self) -> MemoryStore:
        """Copy what is stored."""
        return MemoryStore.copy_of(self.place())

    def recover(self, start: RestoreOptions | None = None, copy: MemoryStore | None = None) -> Observed:
        """Recover on a copy."""
        backend = self.backend(self.copy() if copy is None else copy)
        return self.engine.observe(backend.open(self.engine.states, start or RestoreOptions())[1])

    # What must hold

    def check(self, *, thorough: bool = False) -> None:
        """Check all that must hold at any time; where nothing has changed, nothing is done.

        Args:
            thorough: whether to have `fsck` look at it, too.
        """
        copy = self.copy()
        if self._is_known(copy, thorough):
            return
        if thorough:
            self.check_fsck(copy.clone())
        manifests = self.check_chain(copy.clone())
        self.check_recovery(copy.clone())
        self.check_snapshots(copy, manifests)
        self._is_known(copy, thorough)  # the floor may be another now

    def _is_known(self, copy: MemoryStore, *facts: Any) -> bool:
        """Whether this situation was seen before; record it."""
        here = hash((frozenset(copy.objects.items()), self.floor, self.ceiling, self._may_go_back, *facts))
        if here in self.known:
            return True
        self.known.add(here)
        return False

    def check_recovery(self, copy: MemoryStore) -> None:
        """Check the recovered state: the model's, at a position after each commit that never goes back."""
        try:
            observed = self.recover(copy=copy)
        except SnapshotCorrupt as error:
            if self.bad:
                return
            raise Violation("state", f"it can't be recovered: {error}") from error
        if observed.differs:
            raise Violation("state", f"at {observed.position}: {observed.differs}")
        self._exact.add(observed.snapshot)
        if not self.bad:
            self._require_floor("recovery", observed.position)
            self.floor = self.floor if self._may_go_back else observed.position

    def check_fsck(self, copy: MemoryStore) -> None:
        """Every file of every retained snapshot is there and whole."""
        report = fsck(self.backend(copy))
        if report.problems and not self.bad:
            raise Violation("fsck", "; ".join(report.problems))

    def check_chain(self, copy: MemoryStore) -> list[Manifest]:
        """Manifests follow each other, each is a claim or by the last claimant, and what each names is there."""
        manifest_log = self.backend(copy).manifest_log()
        if self.bad or manifest_log.find() is None:
            return []
        try:
            manifests = [*manifest_log.manifests()]
            for entry in {entry for manifest in manifests for entry in manifest.files}:
                manifest_log.read(entry)
        except SnapshotCorrupt as error:
            raise Violation("fsck", str(error)) from error
        for before, after in pairwise(manifests):
            is_claim = after.epoch == after.seq and after.runner != before.runner
            if not is_claim and (before.epoch, before.runner) != (after.epoch, after.runner):
                raise Violation("chain", f"{after.seq} by {after.runner} follows on {before.seq} by {before.runner}")
        return manifests

    def check_snapshots(self, copy: MemoryStore, manifests: list[Manifest]) -> None:
        """Every retained snapshot can be restored exactly; what was once exact stays so, since its files are whole."""
        for snapshot in {manifest.snapshot for manifest in manifests} - self._exact - {0}:
            observed = self.recover(RestoreOptions(restore=snapshot), copy.clone())
            if observed.differs or observed.snapshot != snapshot:
                raise Violation("state", f"snapshot {snapshot} at {observed.position}: {observed.differs}")
            self._exact.add(snapshot)

    def check_collected(self, copy: MemoryStore | None = None) -> None:
        """Check that all that is no longer retained is deleted, and nothing else."""
        copy = self.copy() if copy is None else copy
        report = fsck(self.backend(copy))
        manifests, marks = len(copy.list("m/")), len(copy.list("gc/"))
        most = max(self.retain, 3)
        if report.unused or manifests > most or marks > 1 or report.snapshots < self.retain:
            reason = f"{report.snapshots} snapshots in {manifests} manifests, {marks} marks of the boundary"
            reason += f", unused: {report.unused}"
            raise Violation("collection", reason)

    def finish(self) -> None:
        """Inject no more faults: the job must reach its end, and unused files must go."""
        self.faults.clear()
        self.faults.release()
        self.check()
        zombies = [process for process in self.processes if process.is_alive]
        if self._is_known(self.copy(), "finish", *((zombie.number, zombie.position) for zombie in zombies)):
            return
        run = self._last_start()
        last = len(self.engine.records)
        tail = max(self.retain, 3) + 1
        for until in range(max(run.position + 1, last - tail + 1), last + 1):
            run.process(until)
            if (outcome := run.snapshot()) != "committed":
                raise Violation("liveness", f"without a fault, a snapshot {outcome}")
        if self.floor != last:
            raise Violation("liveness", f"the input ends at {last}, and the job at {self.floor}")
        self.check(thorough=True)
        self.check_collected()
        for zombie in zombies:
            zombie.process(zombie.position + 1)
            if (outcome := zombie.snapshot()) != "fenced":
                raise Violation("claimant", f"{zombie} was not fenced: its snapshot {outcome}")
        self.check()

    def _last_start(self) -> Process:
        for _ in range(3):
            run = self.start()
            if run.is_alive:
                return run
        raise Violation("liveness", "three starts failed without a fault")

    def _require_floor(self, what: str, position: int) -> None:
        if self.bad:
            return
        if position < self.floor:
            raise Violation("floor", f"{what} at {position}; known to be kept is {self.floor}")
        if position > self.ceiling:
            raise Violation("state", f"{what} at {position}; no run came further than {self.ceiling}")
