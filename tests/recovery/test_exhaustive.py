"""A few stories, in which each call of the store goes wrong in each way, and late writes arrive at each time."""

from __future__ import annotations

import logging
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from malflow.snapshot import snapshots
from malflow.snapshot.files.data_file import Section, decode_file
from malflow.snapshot.persistence import RestoreOptions
from malflow.store.local import LocalStore
from tests.kit.faults import ALWAYS, Fault
from tests.kit.faulty_store import KINDS, Call, Faults, can_tell
from tests.kit.memory_store import MemoryStore
from tests.kit.nights import at_night
from tests.recovery.scenario import Process, Real, Toy, Violation, World

pytestmark = pytest.mark.slow

LOCAL_STRIDE = 29
REAL_STRIDE = 37
PAIRS = 200

MILD = ("throttled", "error_after", "unknown_before", "late")
"""After one of these, nothing may happen that anyone notices."""


@dataclass
class Story:
    """Steps of a world. A run that dies of a fault is started again, and repeats the step it died of."""

    world: World
    careful: bool = True
    runs: dict[str, Process] = field(default_factory=dict)
    deaths: int = 0
    _workers: dict[str, int] = field(default_factory=dict)

    def start(self, name: str, workers: int = 1, restore: Any = "latest") -> None:
        """Start a run, or start it anew; the one before is gone."""
        if name in self.runs:
            self.runs[name].drop()
        self._workers[name] = workers
        for _ in range(2):
            self.runs[name] = self.world.start(workers, RestoreOptions(restore=restore))
            self._look(self.runs[name])
            if self.runs[name].is_alive:
                return

    def snapshot(self, name: str, until: int) -> str:
        """Process records up to a position, and take a snapshot."""
        outcome = ""
        for _ in range(2):
            if not self._revived(name):
                break
            run = self.runs[name]
            run.process(until)
            outcome = run.snapshot()
            self._look(run)
            if run.is_alive:
                break
        return outcome

    def rescale(self, name: str, workers: int) -> None:
        """Change the number of workers."""
        self._workers[name] = workers
        if self._revived(name):
            self.runs[name].rescale(workers)

    def oldest(self) -> int:
        """Return the id of the oldest snapshot."""
        return next(snapshots(self.world.backend(self.world.copy()))).id

    def _revived(self, name: str) -> bool:
        """Restart a run that died, unless another took its place; return whether it is alive."""
        run = self.runs[name]
        if not run.is_alive and run.ended != "fenced" and self.world.claimant <= run.number:
            self.start(name, self._workers[name])
        return self.runs[name].is_alive

    def _look(self, run: Process) -> None:
        self.deaths += run.ended in ("crashed", "unknown", "failed")
        if self.careful or self.world.faults.fired:
            self.world.check()


def first_run(story: Story) -> None:
    """A job begins; keys are dropped and made again; the run is started once more."""
    story.start("a")
    story.snapshot("a", 3)
    story.snapshot("a", 6)
    story.snapshot("a", 9)
    story.start("a")
    story.snapshot("a", 11)


def collection(story: Story) -> None:
    """Many small increments are there: they are compacted, and old snapshots are collected."""
    story.start("a")
    story.snapshot("a", 12)
    story.snapshot("a", 13)


def two_runs(story: Story) -> None:
    """A second run claims the job, and the first goes on; then a third comes."""
    story.start("a")
    story.snapshot("a", 13)
    story.start("b")
    story.snapshot("a", 14)
    story.snapshot("b", 15)
    story.start("c")
    story.snapshot("c", 16)


def rescaling(story: Story) -> None:
    """The number of workers changes, in a run and from one to the next."""
    story.start("a", 3)
    story.snapshot("a", 13)
    story.rescale("a", 2)
    story.snapshot("a", 15)
    story.start("a", 1)
    story.snapshot("a", 16)


def going_back(story: Story) -> None:
    """An older snapshot is restored, then nothing is, then the latest one."""
    story.start("a", restore=story.oldest())
    story.snapshot("a", 14)
    story.start("a", restore=None)
    story.snapshot("a", 2)
    story.start("a")
    story.snapshot("a", 5)


def _earlier(world: World, *positions: int) -> None:
    run = world.start()
    for position in positions:
        run.process(position)
        assert run.snapshot() == "committed"
    run.drop()


@dataclass(frozen=True)
class Setting:
    """A story, and what there is when it begins."""

    tell: Callable[[Story], None]
    earlier: tuple[int, ...] = ()
    retain: int = 2
    growth: float = 100.0

    def __repr__(self) -> str:
        return self.tell.__name__


SETTINGS = (
    Setting(first_run),
    Setting(collection, (4, 5, 6, 7, 8, 9, 10, 11)),
    Setting(two_runs, (4, 7)),
    Setting(rescaling, (4, 7), growth=0.5),
    Setting(going_back, (4, 7, 9), retain=4),
)


@cache
def engine(kind: type[Toy | Real]) -> Toy | Real:
    return kind()


@cache
def beginning(setting: Setting, kind: type[Toy | Real]) -> tuple[dict[str, bytes], int]:
    """Make what there is when a story begins, and return the number of its last record."""
    objects: dict[str, bytes] = {}
    world = World(lambda: MemoryStore(objects), engine(kind), retain=setting.retain, growth=setting.growth)
    if setting.earlier:
        _earlier(world, *setting.earlier)
    return objects, world.floor


def told(
    setting: Setting,
    kind: type[Toy | Real],
    *faults: Fault,
    folder: Path | None = None,
    known: set[int] | None = None,
) -> Story:
    """Play a story with faults to its end, in memory or in a folder."""
    objects, floor = beginning(setting, kind)
    objects = dict(objects)
    for key, data in objects.items() if folder is not None else ():
        assert folder is not None
        path = folder / key
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)
    world = World(
        lambda: MemoryStore(objects) if folder is None else LocalStore(folder),
        engine(kind),
        Faults(*faults),
        retain=setting.retain,
        growth=setting.growth,
        floor=floor,
        ceiling=floor,
        first_token=1 << 20,
        known=set() if known is None else known,
    )
    story = Story(world, careful=not faults)
    setting.tell(story)
    return story


@cache
def calls(setting: Setting, kind: type[Toy | Real]) -> tuple[Call, ...]:
    """Return all calls of the store in a story without faults."""
    return tuple(told(setting, kind).world.faults.log)


def faults_in(log: tuple[Call, ...]) -> Iterator[Fault]:
    """Yield each fault of each call; late writes arrive before each call that can tell, and at the end."""
    for call, nth, later in _counted(log):
        operation, key_class = call.operation, call.key_class
        for kind in KINDS[operation]:
            if kind in ("late", "crash_late"):
                for release_after in (*range(1, later + 1), None):  # at once is what the other kinds do
                    yield Fault(kind, operation, key_class, nth, release_after=release_after)
            else:
                yield Fault(kind, operation, key_class, nth)
        for kind in ("error_before", "unknown_before", "late") if operation == "put_new" else ("throttled",):
            if kind in KINDS[operation]:
                yield Fault(kind, operation, key_class, nth, ALWAYS)


def torn_in(log: tuple[Call, ...]) -> Iterator[Fault]:
    """Yield a crash in the middle of each write."""
    for call, nth, _ in _counted(log):
        if call.operation == "put_new":
            yield Fault("torn", "put_new", call.key_class, nth)


def doubts_in(log: tuple[Call, ...]) -> Iterator[tuple[Fault, Fault]]:
    """Yield an unknown outcome of each write, with a refusal of the next one of its kind."""
    for call, nth, later in _counted(log):
        if call.operation != "put_new":
            continue
        refusal = Fault("error_before", "put_new", call.key_class, nth + 1)
        yield Fault("unknown_before", "put_new", call.key_class, nth), refusal
        for release_after in (*range(later + 1), None):
            yield Fault("late", "put_new", call.key_class, nth, release_after=release_after), refusal


def _counted(log: tuple[Call, ...]) -> Iterator[tuple[Call, int, int]]:
    """Yield each call with the number of its kind before it, and of later calls that depend on it."""
    seen: Counter[tuple[str, str]] = Counter()
    for index, call in enumerate(log):
        place = (call.operation, call.key_class)
        yield call, seen[place], sum(can_tell(other, call.key) for other in log[index + 1 :])
        seen[place] += 1


def endure(
    setting: Setting,
    kind: type[Toy | Real],
    *faults: Fault,
    folder: Path | None = None,
    known: set[int] | None = None,
) -> Story:
    """Play a story with faults, and check that they do no harm."""
    try:
        story = told(setting, kind, *faults, folder=folder, known=known)
        if len(faults) == 1:
            _require_patience(story, *faults)
        story.world.finish()
    except BaseException as error:
        error.add_note(f"in {setting!r} with {faults!r}")
        raise
    return story


def survive(
    setting: Setting, kind: type[Toy | Real], fault: Fault, *, folder: Path | None = None, known: set[int]
) -> None:
    """Play a story with a fault, and check that it fires and does no harm."""
    story = endure(setting, kind, fault, folder=folder, known=known)
    assert story.world.faults.fired, f"{fault} did not fire in {setting!r}"


def _require_patience(story: Story, fault: Fault) -> None:
    if fault.kind in MILD and fault.times == 1 and (story.deaths or story.world.failures):
        raise Violation("liveness", f"{story.deaths} runs died of it, {story.world.failures} snapshots failed")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "malflow.snapshot")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder, if possible on a disk in memory, which syncs faster."""
    memory = Path("/dev/shm")  # noqa: S108 - nothing secret is put there
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


FAULTS = {setting: tuple(faults_in(calls(setting, Toy))) for setting in SETTINGS}
"""All that can go wrong in each story, in memory."""


@pytest.mark.fault("A1", "A2", "A3", "A4", "A5", "A8", "A9", "A11", "C9", "C10", "C17", "D6")
@pytest.mark.parametrize("setting", at_night(SETTINGS, but=SETTINGS[1:2]), ids=repr)
def test_no_fault_at_any_call_of_the_store_does_harm(setting: Setting) -> None:
    known: set[int] = set()
    for fault in FAULTS[setting]:
        survive(setting, Toy, fault, known=known)


@pytest.mark.parametrize("setting", at_night(SETTINGS, but=SETTINGS[1:2]), ids=repr)
def test_no_fault_does_harm_on_a_local_disk(setting: Setting, disk: Path) -> None:
    known: set[int] = set()
    for number, fault in enumerate((*FAULTS[setting][::LOCAL_STRIDE], *torn_in(calls(setting, Toy)))):
        survive(setting, Toy, fault, folder=disk / str(number), known=known)


@pytest.mark.fault("A6")
@pytest.mark.parametrize("setting", SETTINGS, ids=repr)
def test_no_fault_does_harm_to_the_engine(setting: Setting) -> None:
    known: set[int] = set()
    for fault in [*faults_in(calls(setting, Real))][::REAL_STRIDE]:
        survive(setting, Real, fault, known=known)


@pytest.mark.nightly
@pytest.mark.parametrize("setting", SETTINGS[:2], ids=repr)
def test_no_doubt_does_harm_that_is_followed_by_a_refusal(setting: Setting) -> None:
    known: set[int] = set()
    for doubt in doubts_in(calls(setting, Toy)):
        assert endure(setting, Toy, *doubt, known=known).world.faults.fired


@pytest.mark.fault("A10")
@pytest.mark.nightly
def test_no_two_faults_do_harm() -> None:
    chance = random.Random(3)  # noqa: S311 - it keeps no secret
    fired = 0
    for _ in range(PAIRS):
        setting = chance.choice(SETTINGS)
        pair = chance.sample(FAULTS[setting], 2)
        fired += {*pair} == {*endure(setting, Toy, *pair).world.faults.fired}
    assert fired > PAIRS // 2


def test_thousands_of_faults_are_tried() -> None:
    sizes = {repr(setting): len(faults) for setting, faults in FAULTS.items()}

    assert sum(sizes.values()) > 2_000, sizes
    assert min(sizes.values()) > 250, sizes
    assert {fault.kind for faults in FAULTS.values() for fault in faults} == {*chain.from_iterable(KINDS.values())}
    assert {(fault.operation, fault.target) for faults in FAULTS.values() for fault in faults} == {
        *((operation, kind) for operation in ("put_new", "get") for kind in ("job", "manifest", "data")),
        *((operation, kind) for operation in ("list", "delete", "sweep") for kind in ("manifest", "data", "boundary")),
        ("put_new", "boundary"),
    }


def test_the_same_fault_leads_to_the_same_calls() -> None:
    for setting in SETTINGS:
        for fault in FAULTS[setting][::97]:
            first, second = (told(setting, Toy, fault).world for _ in range(2))
            assert first.faults.log == second.faults.log
            assert first.copy().objects == second.copy().objects


def test_the_stories_do_what_they_say() -> None:
    stories = {setting.tell.__name__: told(setting, Toy) for setting in SETTINGS}
    kinds = {section.what for story in stories.values() for section in _sections(story)}
    collected = stories["collection"].world
    manifest_log = collected.backend(collected.copy()).manifest_log()
    assert manifest_log.find() is not None
    sizes = [len(manifest.files) for manifest in manifest_log.manifests()]

    assert kinds == {"whole", "changed", "appended", "deleted"}
    assert not any(story.deaths or story.world.failures for story in stories.values())
    assert max(sizes) == 8, "no chain grew"
    assert sizes[-1] < 7, "nothing was compacted"
    assert Call("put_new", "gc/00000000000000000009") in collected.faults.log, "nothing was collected"
    assert {name: run.ended for name, run in stories["two_runs"].runs.items()} == {"a": "fenced", "b": "", "c": ""}


def _sections(story: Story) -> Iterator[Section]:
    copy = story.world.copy()
    for key in copy.list("d/"):
        yield from decode_file(key, copy.objects[key]).sections
