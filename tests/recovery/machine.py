"""Whatever happens to the runs of a job: it is recovered exactly, and nothing that was committed is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import event, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from malflow.engine.plan import PartAssignment
from malflow.errors import OperatorError, RunFailed, SnapshotCorrupt, SnapshotError
from malflow.snapshot.persistence import RestoreOptions
from malflow.snapshot.protocol.manifest import manifest_key
from malflow.testing.driven import DrivenProcesses
from tests.kit.faults import Fault
from tests.kit.memory_store import MemoryStore
from tests.kit.shared_list import SharedList
from tests.recovery.flow import Event, Flow, FlowRun, Record, Shape, Version
from tests.recovery.scenario import Observed, Process, StoredBackend, Violation, World

__all__ = ["FIRED", "Job", "ProcessesRecoveryMachine", "RecoveryMachine", "SignedRecoveryMachine"]

FIRED: Counter[str] = Counter()
"""How often each kind of fault has fired in this session."""

KEYS = {"left": ("", 1, 1.0, True, "é"), "right": ("a", (1, "é"), 0, False, -0.0)}
"""The keys of each part: what a deletion leaves would depend on the order of parts otherwise."""
NAMES = ("p", "", "é", 0, 1.5, ("t", 1), "left", -7, "q-é", 10**12)
"""The names of parts of the uneven source; one is that of another source's part."""

DAMAGES = ("flip", "truncate", "append", "empty", "delete", "swap")

_FAULTS = [
    *(Fault(kind, "put_new", "manifest") for kind in ("crash_before", "crash_after", "error_after", "late")),
    *(Fault(kind, "put_new", "manifest") for kind in ("error_before", "crash_late", "throttled", "unknown_before")),
]
COMMIT_FAULTS = [
    *_FAULTS,
    *(Fault(kind, "put_new", "data") for kind in ("crash_after", "error_before", "error_after", "late", "crash_late")),
    *(Fault(kind, "put_new", "boundary") for kind in ("crash_before", "crash_after", "error_before", "late")),
    *(Fault(kind, "list", "boundary") for kind in ("crash_before", "error_before", "throttled")),
    *(Fault(kind, "delete", "data") for kind in ("crash_before", "crash_after", "error_after")),
    *(Fault(kind, "delete", "manifest") for kind in ("crash_after", "error_before")),
]
START_FAULTS = [
    *_FAULTS,
    *(Fault(kind, "get", "manifest") for kind in ("crash_before", "error_before", "throttled")),
    *(Fault(kind, "get", "data") for kind in ("crash_before", "error_before", "throttled")),
    *(Fault(kind, "list", "manifest") for kind in ("error_before", "throttled")),
    *(Fault(kind, "put_new", "job") for kind in ("crash_after", "error_after", "late", "crash_late")),
]


class Job(World):
    """A `World` whose engine is a `Flow`: each snapshot is of one of its versions."""

    engine: Flow  # type: ignore[assignment] # the dataflow in place of the engines of the scenarios
    signing_key: str | None = None

    def backend(self, store: Any = None) -> StoredBackend:
        """Make a backend, with a key where there is one."""
        plain = super().backend(store)
        if self.signing_key is None:
            return plain
        options = {"retain": self.retain, "growth": self.growth, "signing_key": self.signing_key}
        signed = StoredBackend(plain._test_store, plain._environment, **options)
        signed._retry_seconds, signed._limits = plain._retry_seconds, plain._limits
        return signed

    def note(self) -> None:
        """Note of each new snapshot what it is of."""
        objects = self.place().objects  # type: ignore[attr-defined] # it is a MemoryStore
        for key in sorted(key for key in objects if key.startswith("m/") and key not in self.bad):
            manifest = _parsed(objects[key])
            seq = manifest["seq"]
            if manifest["snapshot"] == seq and seq not in self.engine.shapes:
                self.engine.shapes[seq] = self.engine.writers[manifest["runner"]]

    def retained(self) -> list[dict[str, Any]]:
        """Read the manifests that count."""
        objects = self.place().objects  # type: ignore[attr-defined] # it is a MemoryStore
        boundary = max((key[3:] for key in objects if key.startswith("gc/")), default="")
        keys = sorted(key for key in objects if key.startswith("m/") and key[2:22] >= boundary)
        return [_parsed(objects[key]) for key in keys if key not in self.bad]

    def newest(self) -> Shape:
        """Return the version of the program in the newest snapshot."""
        manifests = self.retained()
        return self.engine.shapes[manifests[-1]["snapshot"] if manifests else 0]

    def recover(self, start: RestoreOptions | None = None, copy: MemoryStore | None = None) -> Observed:
        """Recover on a copy, with the version of the program that wrote it."""
        self.note()
        restore = "latest" if start is None else start.restore
        version = (self.engine.shapes[restore] if isinstance(restore, int) else self.newest()).version
        return self.open_on(self.copy() if copy is None else copy, RestoreOptions(restore), version)

    def open_on(self, copy: MemoryStore, start: RestoreOptions, version: Version) -> Observed:
        """Recover on a copy, with some version of the program."""
        restored = self.backend(copy).open(self.engine.states_of(version), start)[1]
        return self.engine.observe(restored, version)

    def starting(self, start: RestoreOptions) -> None:
        """Note that a run may go back from now on, also where it does because of damage."""
        super().starting(start)
        if start.recovery == "previous":
            self._may_go_back, self.floor = True, 0

    def start_run(self, parallelism: int, restore: Any = "latest", recovery: Any = "strict") -> Process:
        """Start a run of the version that is wanted."""
        self.note()
        return self.start(parallelism, evolving(self.engine.wanted, restore, recovery))


@lru_cache
def _parsed(manifest: bytes) -> dict[str, Any]:
    """Read a manifest, by a reading that owes nothing to malflow."""
    body: dict[str, Any] = json.loads(manifest)
    return body


def evolving(version: Version, restore: Any = "latest", recovery: Any = "strict") -> RestoreOptions:
    """Start a version, whichever came before."""
    other = "tally" if version.counter == "count" else "count"
    dropped = () if version.has_extra else ("extra",)
    return RestoreOptions(restore, recovery, renamed={other: version.counter}, allow_dropped_state=dropped)


class RecoveryMachine(RuleBasedStateMachine):
    """One job, its runs one after the other and beside each other, and all that can happen to it."""

    signing_key: str | None = None
    workers = strategies.integers(1, 3)

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.flow = self.new_flow()
        self.world = Job(self._view, engine=self.flow)  # type: ignore[arg-type] # a Flow is an engine, too
        self.world.signing_key = self.signing_key
        self.damaged: dict[str, bytes] = {}

    def new_flow(self) -> Flow:
        """Return the dataflow, without input."""
        return Flow()

    def _view(self) -> MemoryStore:
        return MemoryStore(self.store.objects)

    @property
    def runs(self) -> list[Process]:
        """The runs that are there, the newest last."""
        return [process for process in self.world.processes if process.is_alive]

    @initialize(
        retain=strategies.integers(1, 4),
        growth=strategies.sampled_from([1.0, 0.1, 50.0]),
        fed=strategies.sampled_from([12, 0]),
        names=strategies.lists(strategies.sampled_from(NAMES), unique=True),
        pages=strategies.sampled_from([0, 9, 24]),
        fault=strategies.none() | strategies.sampled_from(START_FAULTS),
    )
    def begin(
        self, retain: int, growth: float, fed: int, names: list[Any], fault: Fault | None, pages: int = 0
    ) -> None:
        self.world.retain, self.world.growth = retain, growth
        for number in range(pages):
            self.flow.add_page((5, 0, 1, 30, 2)[number % 5])
        for which, name in enumerate(names):
            self.flow.add_piece(name)
            self.feed_piece(which, (1, 2, 30)[which % 3] if fed else 0)
        for number in range(fed):
            amount = None if number % 5 == 3 else 1 + number % 2
            self.feed("left", [(number * 3 % 5, amount)])
            self.feed("right", [(number * 2 % 5, amount)])
            self.feed_events([("a" if number % 3 else 1, (2, 3, -1)[number % 3], (3, -4)[number % 2])])
        self.restart(1, fault)

    # What is fed

    @rule(
        part=strategies.sampled_from(["left", "right"]),
        records=strategies.lists(
            strategies.tuples(strategies.integers(0, 4), strategies.sampled_from([1, None, 2])), min_size=1, max_size=4
        ),
    )
    def feed(self, part: str, records: list[tuple[int, int | None]]) -> None:
        self.flow.fed[part].extend(Record(KEYS[part][key], amount) for key, amount in records)

    @rule(
        steps=strategies.lists(
            strategies.tuples(
                strategies.sampled_from(["a", "", 1, True]),
                strategies.integers(-3, 4),
                strategies.sampled_from([3, 0, -4]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def feed_events(self, steps: list[tuple[Any, int, int]]) -> None:
        for key, step, ttl in steps:
            fed = self.flow.fed["events"]
            latest = max((it.time for it in fed), default=0)
            fed.append(Event(key, latest + step, ttl))

    @rule(which=strategies.integers(0, 9), rows=strategies.sampled_from([1, 2, 7, 60]))
    def feed_piece(self, which: int, rows: int) -> None:
        if names := self.flow.listing.names:
            piece = self.flow.pieces[names[which % len(names)]]
            piece.extend(range(len(piece), len(piece) + rows))

    @rule(
        name=strategies.none() | strategies.sampled_from(NAMES),
        left_out=strategies.sets(strategies.sampled_from(NAMES), max_size=3),
        turn=strategies.integers(0, 9),
    )
    def list_otherwise(self, name: Any, left_out: set[Any], turn: int) -> None:
        """From the next start on, the uneven source lists its parts otherwise, perhaps with a new one."""
        if name is not None:
            self.flow.add_piece(name)
        listing = self.flow.listing
        listing.left_out, listing.turn = left_out, turn

    @rule(
        rows=strategies.lists(strategies.integers(0, 9), max_size=8),
        turn=strategies.integers(0, 9),
        assignment=strategies.sampled_from(["auto", "dynamic", "static"]),
    )
    def list_more_pages(self, rows: list[int], turn: int, assignment: PartAssignment) -> None:
        """From the next start on there are more parts that end, and all parts may be assigned otherwise."""
        for number in rows:
            self.flow.add_page(number)
        self.flow.page_listing.turn, self.flow.assignment = turn, assignment

    @precondition(lambda self: self.flow.listing.parts())
    @rule(parallelism=workers)
    def list_a_part_twice(self, parallelism: int) -> None:
        """A start is refused, and leaves the job to the run that has it."""
        self.flow.listing.is_twice = True
        try:
            with pytest.raises(OperatorError, match=r"operator 'pieces' failed: it lists part .* more than once"):
                self.world.start_run(parallelism)
        finally:
            self.flow.listing.is_twice = False

    # A run

    @rule(ticks=strategies.integers(1, 4))
    def tick(self, ticks: int) -> None:
        self._tick(self._run(), ticks)

    @rule(ticks=strategies.integers(0, 2), times=strategies.integers(1, 9))
    def snapshot(self, ticks: int, times: int) -> None:
        run = self._run()
        for _ in range(times):
            self._tick(run, ticks)
            if run.snapshot() != "committed":
                break

    @rule(ticks=strategies.integers(0, 2), fault=strategies.sampled_from(COMMIT_FAULTS))
    def failing_snapshot(self, ticks: int, fault: Fault) -> None:
        run = self._run()
        self._tick(run, ticks)
        self._with(fault, lambda: event(f"a snapshot {run.snapshot()}"))
        if run.is_alive:
            self._tick(run, 1)
            run.snapshot()

    @rule()
    def stop(self) -> None:
        run = self._run()
        if run.snapshot() == "committed":
            run.drop()

    @rule()
    def crash(self) -> None:
        for run in self.runs[-1:]:
            run.drop()

    @rule(parallelism=workers)
    def rescale(self, parallelism: int) -> None:
        self._run().rescale(parallelism)

    @rule(which=strategies.integers(0, 30), to=strategies.integers(0, 2))
    def move_a_part(self, which: int, to: int) -> None:
        run = self._run()
        _engine(run).move(which, to)
        self.world.ceiling = max(self.world.ceiling, run.position)

    @rule()
    def collect(self) -> None:
        _engine(self._run()).session._delete_unreferenced()

    # Starts

    @rule(parallelism=workers, fault=strategies.none() | strategies.sampled_from(START_FAULTS))
    def restart(self, parallelism: int, fault: Fault | None) -> None:
        for run in self.runs:
            run.drop()
        self._with(fault, lambda: self._start(parallelism))

    @rule(parallelism=workers, fault=strategies.none() | strategies.sampled_from(START_FAULTS))
    def second_run(self, parallelism: int, fault: Fault | None) -> None:
        self._with(fault, lambda: self._start(parallelism))

    @rule(parallelism=workers, back=strategies.integers(0, 2))
    def go_back(self, parallelism: int, back: int) -> None:
        ids = self._ids()
        self._start(parallelism, restore=ids[back % len(ids)] if ids else "latest")

    @precondition(lambda self: len(self.runs) > 1)
    @rule(ticks=strategies.integers(0, 2))
    def zombie_acts(self, ticks: int) -> None:
        zombie, claimed = self.runs[0], self.world.claimant
        if not self.world.bad:
            self._tick(zombie, ticks)
            outcome = zombie.snapshot()
            event(f"the snapshot of a zombie {outcome}")
            if claimed > zombie.number and outcome != "fenced":
                raise Violation("claimant", f"{zombie} was not fenced: its snapshot {outcome}")
            zombie.drop()

    @precondition(lambda self: self.world.faults.late)
    @rule(which=strategies.integers(0, 3))
    def late_write_arrives(self, which: int) -> None:
        late = self.world.faults.late
        event("a late write arrives")
        self.world.faults.release(late[which % len(late)])

    # The program

    @rule(what=strategies.sampled_from(["extra", "map", "name", "version"]))
    def change_program(self, what: str) -> None:
        old = self.flow.wanted
        self.flow.wanted = {
            "extra": Version(old.counter, not old.has_extra, old.has_map, old.version),
            "map": Version(old.counter, old.has_extra, not old.has_map, old.version),
            "name": Version("tally" if old.counter == "count" else "count", old.has_extra, old.has_map, old.version),
            "version": Version(old.counter, old.has_extra, old.has_map, 2),
        }[what]
        if not self.world.bad:
            self._require_words()

    # Damage

    @precondition(lambda self: self._ids() and not self.world.bad)
    @rule(which=strategies.integers(0, 9), how=strategies.sampled_from(DAMAGES), at=strategies.integers(0, 999))
    def damage_a_copy(self, which: int, how: str, at: int) -> None:
        """Damage is found, whatever it is; going back is possible where there is something to go back to."""
        copy = self.world.copy()
        keys = ["job.json", *self._needed()]
        key = keys[which % len(keys)]
        if not _damage(copy.objects, key, how, at):
            return
        shape = self.world.newest()
        try:
            observed = self.world.open_on(copy.clone(), RestoreOptions(), shape.version)
        except SnapshotCorrupt as error:
            if error.name not in (key, *copy.objects):
                raise Violation("corruption", f"'{key}' is damaged, and it names '{error.name}'") from error
        else:
            raise Violation("corruption", f"'{key}' is damaged, and {observed} was loaded")
        event(f"{how} {key[:2]}")
        try:
            observed = self.world.open_on(copy, evolving(shape.version, recovery="previous"), shape.version)
        except SnapshotError as error:
            event(f"no going back: {type(error).__name__}")
            return
        event("gone back")
        if observed.differs or observed.position > self.world.ceiling:
            raise Violation("corruption", f"gone back to {observed.position}: {observed.differs}")

    @precondition(lambda self: self._ids() and not self.world.bad)
    @rule(which=strategies.integers(0, 9), at=strategies.integers(0, 999))
    def damage(self, which: int, at: int) -> None:
        keys = self._needed()
        key = keys[which % len(keys)]
        self.damaged[key] = self.store.objects[key]
        _damage(self.store.objects, key, "flip", at)
        self.world.bad.add(key)

    @precondition(lambda self: self.world.bad)
    @rule(parallelism=workers)
    def go_back_from_damage(self, parallelism: int) -> None:
        for run in self.runs:
            run.drop()
        if any(key.startswith("m/") for key in self.world.bad):
            self.repair()  # what it is of can't be told from a damaged manifest
        wanted = self.flow.wanted
        try:
            self.world.open_on(self.world.copy(), evolving(wanted, recovery="previous"), wanted)
        except SnapshotError as error:
            event(f"no going back: {type(error).__name__}")
        else:
            self._start(parallelism, recovery="previous")
            self.world.floor = self.runs[-1].position
        self.repair()

    @rule()
    def repair(self) -> None:
        for key, data in self.damaged.items():
            if key in self.store.objects:
                self.store.objects[key] = data
        self.damaged.clear()
        self.world.bad.clear()

    # What must hold

    @invariant()
    def holds(self) -> None:
        self.world.note()
        self.world.check()
        for run in self.runs:
            if differs := _engine(run).differs():
                raise Violation("state", f"{run} holds what it should not: {differs}")
        if self.signing_key is not None:
            canary = self.signing_key.encode()
            if any(canary in data or canary.hex().encode() in data for data in self.store.objects.values()):
                raise Violation("secret", "the signing key is in a file")

    def teardown(self) -> None:
        """The job can go on to the end of its input, and collects what is of no use any more."""
        self.world.faults.clear()
        self.world.faults.release()
        self.repair()
        self.holds()
        zombies = [run for run in self.runs if run.number <= self.world.claimant]
        self.flow.listing.left_out = set()
        run = self._last_start()
        run.process(len(self.flow.records))
        for _ in range(max(self.world.retain, 3) + 1):
            self.flow.fed["left"].append(Record("", 1))
            run.process(len(self.flow.records))
            if (outcome := run.snapshot()) != "committed":
                raise Violation("liveness", f"without a fault, a snapshot {outcome}")
        self.world.note()
        self.world.check(thorough=True)
        self.world.check_collected()
        for zombie in zombies:
            if (outcome := zombie.snapshot()) != "fenced":
                raise Violation("claimant", f"{zombie} was not fenced: its snapshot {outcome}")

    # How

    def _run(self) -> Process:
        """Return the newest run, and start one if there is none."""
        if self.runs:
            return self.runs[-1]
        self.repair()
        return self._last_start()

    def _tick(self, run: Process, ticks: int) -> None:
        _engine(run).tick(ticks)
        self.world.ceiling = max(self.world.ceiling, run.position)

    def _start(self, parallelism: int, **how: Any) -> None:
        try:
            process = self.world.start_run(parallelism, **how)
        except SnapshotError as error:
            if not self.world.bad:
                raise
            event(f"a start from damage: {type(error).__name__}")
        else:
            event(f"a start {process.ended or 'succeeded'}")

    def _last_start(self) -> Process:
        for _ in range(3):
            run = self.world.start_run(2)
            if run.is_alive:
                return run
        raise Violation("liveness", "three starts failed without a fault")

    def _with(self, fault: Fault | None, act: Callable[[], object]) -> None:
        if fault is not None:
            self.world.faults.arm(fault)
        fired = len(self.world.faults.fired)
        try:
            act()
        finally:
            self.world.faults.clear()
        for it in self.world.faults.fired[fired:]:
            what = f"{it.kind}, {it.operation} {it.target}"
            event(what)
            FIRED[what] += 1

    def _ids(self) -> list[int]:
        return sorted({manifest["snapshot"] for manifest in self.world.retained()} - {0}, reverse=True)

    def _needed(self) -> list[str]:
        """Name the files of the newest snapshot."""
        newest = self.world.retained()[-1]
        return [manifest_key(newest["seq"]), *(entry["name"] for entry in newest["files"])]

    def _require_words(self) -> None:
        """States that have lost their operator are not dropped without a word."""
        manifests = self.world.retained()
        keys = {entry["name"]: entry["keys"] for entry in manifests[-1]["operators"]} if manifests else {}
        wanted = self.flow.wanted
        specs = self.flow.states_of(wanted)
        lost = [
            name for name in ("count", "tally", "extra") if keys.get(name) and name not in {it.name for it in specs}
        ]
        if not lost:
            return
        event(f"lost: {lost}")
        try:
            self.world.backend(self.world.copy()).open(specs, RestoreOptions())
        except SnapshotCorrupt:
            raise
        except SnapshotError as error:
            if all(f"'{name}'" in str(error) for name in lost):
                return
            raise Violation("evolution", f"{lost} would be lost, and it says: {error}") from error
        raise Violation("evolution", f"{lost} are lost without a word")


class SignedRecoveryMachine(RecoveryMachine):
    """The same with a key: it shows nowhere."""

    signing_key = "canary-0123456789abcdef"


def _engine(process: Process) -> FlowRun:
    run = process.run
    assert isinstance(run, FlowRun)
    return run


def _damage(objects: dict[str, bytes], key: str, how: str, at: int) -> bool:
    """Damage an object; False where it can't be done, or nobody could tell."""
    data = objects[key]
    others = sorted(other for other in objects if other[:2] == key[:2] and objects[other] != data)
    if how == "delete" and key.startswith("m/"):
        return False  # without the newest manifest, the one before it is the newest
    if how == "swap" and not others:
        return False
    if how == "delete":
        del objects[key]
    elif how == "swap":
        other = others[at % len(others)]
        objects[key], objects[other] = objects[other], data
    else:
        flipped = bytearray(data)
        flipped[at % len(data)] ^= 1 << at % 8
        objects[key] = {
            "flip": bytes(flipped),
            "truncate": data[: at % len(data)],
            "append": data + b"0",
            "empty": b"",
        }[how]
    return True


class ProcessesRecoveryMachine(RecoveryMachine):
    """The same, with the workers of each run in two worker processes."""

    def new_flow(self) -> Flow:
        """Return the dataflow, whose input other processes read."""
        self._folder = TemporaryDirectory()
        self._closed: set[int] = set()
        return Flow(lambda part: SharedList(Path(self._folder.name, part)), DrivenProcesses)

    @invariant()
    def ends(self) -> None:
        """End the processes of runs that have ended."""
        self._end([process for process in self.world.processes if not process.is_alive])

    def teardown(self) -> None:
        """As above, and nothing is left."""
        try:
            super().teardown()
        finally:
            self._end(self.world.processes)
            self._folder.cleanup()

    def _end(self, processes: list[Process]) -> None:
        for process in processes:
            if process.run is not None and process.number not in self._closed:
                self._closed.add(process.number)
                _engine(process).live.close(RunFailed("the run was dropped"))
