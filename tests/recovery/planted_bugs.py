"""Bugs that a layer of the tests must find, to check after changes of the tests or the code.

A bug is a change of the source of a function, as small as it can be.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import ModuleType
from typing import Any

import pytest

from malflow.errors import SnapshotCorrupt, StoreError
from malflow.operators.hosting import parts
from malflow.snapshot import restore, writer
from malflow.snapshot.files import data_file, sections
from malflow.snapshot.persistence import RestoreOptions
from malflow.snapshot.protocol import commit, manifest, manifest_log, retention
from malflow.snapshot.protocol import manifest_log as candidates
from malflow.snapshot.protocol.manifest import DataName
from malflow.store import retry
from tests.kit.faults import ALWAYS, Fault
from tests.kit.faulty_store import Call, Faults, FaultyStore
from tests.kit.memory_store import MemoryStore
from tests.recovery.scenario import Process, Real, Record, Toy, Violation, World
from tests.recovery.test_exhaustive import FAULTS, SETTINGS, calls, doubts_in, endure

__all__ = ["BUGS", "DIRECTED", "Bug", "Edit"]


@dataclass(frozen=True)
class Edit:
    """A change of a function's source.

    Attributes:
        owner: the module or class that has it.
        name: its name.
        old: the text to replace, which occurs once.
        new: the replacement.
    """

    owner: Any
    name: str
    old: str
    new: str

    def __call__(self, patch: pytest.MonkeyPatch) -> None:
        """Plant it, wherever the function was imported to."""
        original = inspect.getattr_static(self.owner, self.name)
        source = textwrap.dedent(inspect.getsource(original))
        assert source.count(self.old) == 1, f"{self.name} has changed, and the bug has to be planted anew:\n{source}"
        module = sys.modules[original.__module__]
        found: dict[str, Any] = {}
        code = compile("from __future__ import annotations\n" + source.replace(self.old, self.new), "planted", "exec")
        exec(code, vars(module), found)  # noqa: S102 - it is malflow's own source
        mutant = found[self.name]
        if not isinstance(self.owner, ModuleType):
            patch.setattr(self.owner, self.name, mutant)
            return
        for user in [*sys.modules.values()]:
            if getattr(user, "__name__", "").startswith("malflow.") and vars(user).get(self.name) is original:
                patch.setattr(user, self.name, mutant)


Plant = Callable[[pytest.MonkeyPatch], None]
Hunt = Callable[[], object]


# Ways to find a bug; each raises a `Violation` if it does


def enumerated(story: str, *kinds: str, of: str = "", nth: int = 0, engine: type[Toy | Real] = Toy) -> None:
    """Play a story without faults, then with every fault of some kinds.

    Args:
        story: the story.
        kinds: the kinds of fault.
        of: of which class the objects are; empty for any.
        nth: how many such calls go well, at least.
        engine: what runs the job.
    """
    setting = next(setting for setting in SETTINGS if repr(setting) == story)
    known: set[int] = set()
    endure(setting, engine, known=known)
    for fault in FAULTS[setting]:
        if fault.kind in kinds and of in ("", fault.target) and fault.nth >= nth:
            endure(setting, engine, fault, known=known)


def doubted(story: str, of: str) -> None:
    """Play a story in which a write has an unknown outcome and the next one is refused."""
    setting = next(setting for setting in SETTINGS if repr(setting) == story)
    known: set[int] = set()
    for doubt in doubts_in(calls(setting, Toy)):
        if doubt[0].target == of:
            endure(setting, Toy, *doubt, known=known)


def _world(objects: dict[str, bytes], *positions: int, **options: Any) -> tuple[World, Process]:
    world = World(lambda: MemoryStore(objects), **options)
    run = world.start()
    for position in positions:
        run.process(position)
        assert run.snapshot() == "committed"
    return world, run


def _swap(objects: dict[str, bytes], key: str, other: str) -> None:
    objects[key], objects[other] = objects[other], objects[key]


def _flip(objects: dict[str, bytes], key: str) -> None:
    data = bytearray(objects[key])
    data[len(data) // 2] ^= 1
    objects[key] = bytes(data)


def _require_refusal(world: World, *keys: str) -> None:
    world.bad.update(keys)
    try:
        observed = world.recover()
    except SnapshotCorrupt as error:
        if error.name in keys:
            return
        raise Violation("corruption", f"{keys} are damaged, and it says: {error}") from error
    raise Violation("corruption", f"a snapshot with damaged files {keys} was loaded at {observed.position}")


def swapped_files() -> None:
    """Two increments with the same keys change places: both are files of this job, whole, and of the same size."""
    objects: dict[str, bytes] = {}
    world, _ = _world(objects, *range(1, 9), growth=100.0, engine=Toy([Record(at, "a", 1) for at in range(9)]))
    files = sorted(key for key in objects if key.startswith("d/"))
    sizes = {key: len(objects[key]) for key in files}
    key, other = next((a, b) for a in files for b in files if a < b and sizes[a] == sizes[b])
    _swap(objects, key, other)
    _require_refusal(world, key, other)


def damaged_manifest() -> None:
    """The newest manifest is damaged."""
    objects: dict[str, bytes] = {}
    world, _ = _world(objects, 3, 5)
    newest = max(key for key in objects if key.startswith("m/"))
    _flip(objects, newest)
    _require_refusal(world, newest)


def idle_zombie() -> None:
    """A run that has nothing to write is told that another has claimed the job."""
    world, run = _world({}, 3)
    world.start()
    if (outcome := run.snapshot()) != "fenced":
        raise Violation("claimant", f"the snapshot of a run that has lost its job {outcome}")


def collecting_zombie() -> None:
    """An old run collects, while a new one is between its data and its manifest."""
    objects: dict[str, bytes] = {}
    world, old = _world(objects, 3, 5, 7)
    new = world.start()

    def collect(call: Call) -> None:
        if (call.operation, call.key_class) == ("put_new", "manifest"):
            old.run.session._delete_unreferenced()  # type: ignore[union-attr] # it is there

    store = new.run.session._manifest_log.store  # type: ignore[union-attr] # it is there
    assert isinstance(store, FaultyStore)
    store._before = collect
    new.process(9)
    assert new.snapshot() == "committed"
    store._before = None
    world.check()
    world.finish()


def collection_beside_going_back() -> None:
    """An old run collects what a new one is about to go back to."""
    objects: dict[str, bytes] = {}
    faults = Faults(Fault("error_before", "put_new", "boundary", times=ALWAYS))
    world, old = _world(objects, *range(1, 7), retain=1, growth=0.01, faults=faults)
    assert sum(key.startswith("m/") for key in objects) == 7, "something was collected already"
    faults.clear()
    collected: list[str] = []

    def collect(call: Call) -> None:
        if (call.operation, call.key_class, collected) == ("put_new", "manifest", []):
            before = {*objects}
            old.run.session._delete_unreferenced()  # type: ignore[union-attr] # it is there
            collected.extend(before - {*objects})

    world.before = collect
    new = world.start(start=RestoreOptions(restore=3))
    world.before = None
    assert collected
    assert new.position == 2
    world.check()
    world.finish()


def late_claim() -> None:
    """A run stands still before its claim, until its number is collected."""
    world, _ = _world({}, 3)
    others: list[Process] = []

    def claim_and_collect(call: Call) -> None:
        if (call.operation, call.key_class, others) == ("put_new", "manifest", []):
            world.before = None
            others.append(world.start())
            for position in range(4, 9):
                others[0].process(position)
                assert others[0].snapshot() == "committed"

    world.before = claim_and_collect
    run = world.start()
    assert others
    if not run.is_alive:
        raise Violation("liveness", f"{run} claimed the job last")
    assert run.position == 8
    world.check()


DIRECTED: tuple[Hunt, ...] = (
    swapped_files,
    damaged_manifest,
    idle_zombie,
    collecting_zombie,
    collection_beside_going_back,
    late_claim,
)


# The bugs


@dataclass(frozen=True)
class Bug:
    """A bug, and what must find it.

    Attributes:
        name: what is wrong.
        plant: plants it.
        hunts: ways to find it, each of which must.
        violated: which invariants may be found violated.
    """

    name: str
    plant: Plant
    hunts: tuple[Hunt, ...]
    violated: tuple[str, ...]

    def __repr__(self) -> str:
        return self.name


def _all_of(*plants: Plant) -> Plant:
    """Return a bug of several changes, none of which is one by itself."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for it in plants:
            it(patch)

    return plant


def _manifest_first(patch: pytest.MonkeyPatch) -> None:
    held: list[tuple[str, bytes]] = []
    attempts = count()
    original = commit.Claim.commit

    def write(self: commit.DataWriter, data: bytes) -> str:
        name = DataName(self.seq, self.epoch, self.runner, f"{next(attempts):016x}")
        held.append((name.key, data))
        return name.key

    def commit_first(self: commit.Claim, content: commit.Content) -> manifest.Manifest:
        committed = original(self, content)
        while held:
            self._manifest_log.store.put_new(*held.pop(0))
        return committed

    patch.setattr(commit.DataWriter, "write", write)
    patch.setattr(commit.Claim, "commit", commit_first)


def _unknown_is_failure(patch: pytest.MonkeyPatch) -> None:
    Edit(commit, "_publish", "            doubt = error\n", "            raise StoreError(str(error)) from error\n")(
        patch
    )
    original = commit.Claim.commit

    def commit_or_delete(self: commit.Claim, content: commit.Content) -> manifest.Manifest:
        try:
            return original(self, content)
        except StoreError:
            for entry in {*content.files} - {*self.head.files}:
                self._manifest_log.store.delete(entry.name)
            raise

    patch.setattr(commit.Claim, "commit", commit_or_delete)


def _collect_first(patch: pytest.MonkeyPatch) -> None:
    original = commit.Claim.commit

    def collect_and_commit(self: commit.Claim, content: commit.Content) -> manifest.Manifest:
        needed = {entry.name for entry in content.files}
        for key in self._manifest_log.list("d/"):
            if key not in needed:
                self._manifest_log.store.delete(key)
        return original(self, content)

    patch.setattr(commit.Claim, "commit", collect_and_commit)


_WRITE = "self._claim.commit(replace(content, files=(*kept, *entries)))"

BUGS = (
    Bug(
        "the manifest is written before the data",
        _manifest_first,
        (partial(enumerated, "first_run", "crash_after"),),
        ("fsck",),
    ),
    Bug(
        "a claim does not take a number",
        Edit(
            commit,
            "claim",
            "        if not _publish(manifest_log, manifest_key(head.seq), data):\n",
            "        if numbers and head.snapshot == manifest_log.manifest(numbers[-1]).snapshot:\n"
            "            return Claim(manifest_log, manifest_log.manifest(numbers[-1]), environment)\n"
            "        if not _publish(manifest_log, manifest_key(head.seq), data):\n",
        ),
        (partial(enumerated, "two_runs"),),
        ("claimant",),
    ),
    Bug(
        "a manifest is written over another",
        Edit(
            commit,
            "_publish",
            "            manifest_log.store.put_new(key, data)\n",
            "            manifest_log.store.delete(key)\n            manifest_log.store.put_new(key, data)\n",
        ),
        (partial(enumerated, "two_runs"),),
        ("claimant",),
    ),
    Bug(
        "the position is that before the last records",
        Edit(
            parts,
            "_snapshot",
            "    return partition.snapshot()",
            "    return max(partition.snapshot() - 1, 0) // 2 * 2",
        ),
        (partial(enumerated, "first_run", engine=Real),),
        ("state", "floor"),
    ),
    Bug(
        "what changed is forgotten before it is committed",
        Edit(
            writer.SnapshotSession,
            "_write",
            _WRITE,
            f"self._unwritten, self._unwritten_base = [], False; {_WRITE}",
        ),
        (partial(enumerated, "first_run", "error_before"),),
        ("state",),
    ),
    Bug(
        "deletions are not written",
        Edit(data_file, "encode_delta", "delta.deleted, 0, len(delta.deleted)", "(), 0, 0"),
        (partial(enumerated, "first_run"),),
        ("state",),
    ),
    Bug(
        "the old files are deleted before the commit",
        _collect_first,
        (partial(enumerated, "first_run", "crash_after"),),
        ("fsck",),
    ),
    Bug(
        "neither size nor digest are compared",
        Edit(manifest_log, "read_data", "if len(data) != entry.bytes or actual != entry.sha256:", "if False:"),
        (swapped_files,),
        ("corruption",),
    ),
    Bug(
        "the names of data files do not differ from attempt to attempt",
        Edit(
            commit.DataWriter,
            "write",
            "self.retry.environment.token())\n        try:\n            self.store.put_new(name.key, data)\n",
            "'0' * 16)\n        try:\n            with suppress(KeyExists):\n"
            "                self.store.put_new(name.key, data)\n",
        ),
        (partial(enumerated, "first_run", "error_before"),),
        ("fsck",),
    ),
    Bug(
        "an error is trusted: what exists must be another's",
        Edit(
            commit, "_publish", "        except KeyExists:\n", "        except KeyExists:\n            return False\n"
        ),
        (partial(enumerated, "first_run", "late"),),
        ("liveness",),
    ),
    Bug(
        "only the files of the newest snapshot are kept",
        Edit(
            retention,
            "_needed",
            "for seq in numbers]",
            "for seq in numbers[-1:]]",
        ),
        (partial(enumerated, "rescaling"),),
        ("fsck",),
    ),
    Bug(
        "files are deleted that nobody names yet",
        Edit(
            retention,
            "delete_below",
            "if _is_below(key, boundary) and key not in needed]",
            "if key not in needed]",
        ),
        (collecting_zombie,),
        ("fsck",),
    ),
    Bug(
        "a run goes back to files that another may be deleting",
        Edit(commit, "_first", "else _with_copies(manifest_log, head)", "else head"),
        (collection_beside_going_back,),
        ("state", "fsck"),
    ),
    Bug(
        "a number that was collected can be claimed",
        Edit(commit, "claim", "if manifest_log.boundary() >= head.seq:", "if False:"),
        (late_claim,),
        ("state", "floor", "liveness"),
    ),
    Bug(
        "a number that was collected can be used again",
        _all_of(
            Edit(commit.Claim, "_check_boundary", "if boundary >= seq:", "if False:"),
            Edit(commit.Claim, "_check_head", "raise self._without_head() from None", "return"),
        ),
        (partial(enumerated, "first_run"),),
        ("claimant",),
    ),
    Bug(
        "the boundary is not raised",
        Edit(retention, "delete_below", "if boundary > before:", "if False:"),
        (partial(enumerated, "collection"),),
        ("collection",),
    ),
    Bug(
        "what is not known is taken for done",
        Edit(commit, "_publish", "            doubt = error\n", "            return True\n"),
        (partial(enumerated, "first_run", "unknown_before", of="manifest"),),
        ("floor", "state"),
    ),
    Bug(
        "what is not known is taken for failed, and undone",
        _unknown_is_failure,
        (partial(enumerated, "first_run", "error_after", of="manifest", nth=1),),
        ("fsck",),
    ),
    Bug(
        "a doubt is forgotten when a later try is refused",
        Edit(commit, "_publish", "            if doubt is None:\n                raise\n", "            raise\n"),
        (partial(doubted, "first_run", "manifest"),),
        ("liveness",),
    ),
    Bug(
        "what failed for now is not tried again",
        Edit(retry.Retry, "of", "except (Transient, UnknownOutcome) as error:", "except UnknownOutcome as error:"),
        (partial(enumerated, "first_run", "throttled"),),
        ("liveness",),
    ),
    Bug(
        "what exists is taken for one's own",
        Edit(commit, "_is_ours", "return manifest_log.get(key, LARGEST_MANIFEST) == data", "return True"),
        (partial(enumerated, "two_runs"),),
        ("claimant",),
    ),
    Bug(
        "a rescaled run does not write a base",
        Edit(
            writer.SnapshotSession,
            "needs_full_snapshot",
            "{head.parallelism, self._captured_at} != {parallelism}",
            "False",
        ),
        (partial(enumerated, "rescaling"),),
        ("state",),
    ),
    Bug(
        "keys of workers that are gone are counted",
        Edit(writer.SnapshotSession, "commit", "self._keys.clear()", "pass"),
        (partial(enumerated, "rescaling"),),
        ("state",),
    ),
    Bug(
        "keys that come back keep their old place",
        Edit(
            data_file,
            "apply_chunk",
            'what == "deleted" or (what == "appended" and not state.keys().isdisjoint(value))',
            'what == "deleted"',
        ),
        (partial(enumerated, "first_run"),),
        ("state",),
    ),
    Bug(
        "a section is lost where files are compacted",
        Edit(
            sections,
            "sections_of",
            "[section for file in decoded for section in file.sections]",
            "[section for file in decoded for section in file.sections][:-1]",
        ),
        (partial(enumerated, "collection"),),
        ("state",),
    ),
    Bug(
        "files are compacted in another order",
        Edit(
            sections,
            "sections_of",
            "for file in decoded for section",
            "for file in decoded[::-1] for section",
        ),
        (partial(enumerated, "collection"),),
        ("state",),
    ),
    Bug(
        "what was before a whole state is not dropped",
        Edit(sections, "bare_sections", "if delta.whole:", "if False:"),
        (partial(enumerated, "collection"),),
        ("state",),
    ),
    Bug(
        "a claim does not carry all files on",
        Edit(commit, "_first", "replace(chosen, **facts)", "replace(chosen, **facts, files=chosen.files[:-1])"),
        (partial(enumerated, "collection"),),
        ("state",),
    ),
    Bug(
        "a claim carries the files of another snapshot on",
        Edit(
            commit,
            "_first",
            "replace(chosen, **facts)",
            "replace(chosen, **facts, files=manifest_log.manifest(max(chosen.seq - 1, 1)).files)",
        ),
        (partial(enumerated, "collection"),),
        ("state",),
    ),
    Bug(
        "a damaged snapshot is no snapshot",
        Edit(restore, "manifest_choice", "raise with_hint(error) from error", "return None"),
        (damaged_manifest,),
        ("corruption",),
    ),
    Bug(
        "the order of keys is lost",
        Edit(data_file, "encode_delta", '"appended"', '"changed"'),
        (partial(enumerated, "first_run"),),
        ("state",),
    ),
    Bug(
        "a run with nothing to write does not look whether it still has the job",
        Edit(writer.SnapshotSession, "_unchanged", "self._claim.check()", "pass"),
        (idle_zombie,),
        ("claimant",),
    ),
    Bug(
        "one snapshot too few is retained",
        Edit(retention, "_new_boundary", "> retain:", ">= retain:"),
        (partial(enumerated, "going_back"),),
        ("collection",),
    ),
    Bug(
        "a run starts from the oldest snapshot",
        Edit(candidates, "candidates", "return numbers[::-1]", "return numbers"),
        (partial(enumerated, "first_run"),),
        ("floor",),
    ),
)
