"""Power may fail before any call of the store: unsynced data is then lost, and none of it counts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from malflow.store import local
from malflow.store.contract import is_key
from malflow.store.local import LocalStore
from tests.kit.faults import Fault
from tests.kit.faulty_store import Call, Faults
from tests.kit.memory_store import MemoryStore, contents
from tests.recovery.planted_bugs import Edit
from tests.recovery.scenario import Toy, Violation, World
from tests.recovery.test_exhaustive import FAULTS, SETTINGS, Setting, Story, engine

FAULT_STRIDE = 61


class Disk:
    """The `os` of a program, which notes what it syncs: a folder's names, a file's bytes.

    Args:
        top: a folder that is there.
    """

    def __init__(self, top: Path) -> None:
        self.top = top
        self._names: dict[int, dict[str, int]] = {}
        self._bytes: dict[int, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Open a file; a new one may have the number of one that is gone, and has none of its bytes."""
        file = os.open(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT:
            self._bytes.pop(os.fstat(file).st_ino, None)
        return file

    def fsync(self, file: int) -> None:
        """Note what is on the disk now."""
        facts = os.fstat(file)
        if stat.S_ISDIR(facts.st_mode):
            with os.scandir(file) as entries:
                self._names[facts.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            with open(f"/proc/self/fd/{file}", "rb") as written:  # noqa: PTH123 - it is a number
                self._bytes[facts.st_ino] = written.read()

    def after_power_loss(self) -> Iterator[tuple[str, bytes]]:
        """Return the files that are left; one whose bytes were not synced is empty."""
        yield from self._left(self.top.stat().st_ino, "")

    def _left(self, folder: int, path: str) -> Iterator[tuple[str, bytes]]:
        for name, number in self._names.get(folder, {}).items():
            if number in self._names:
                yield from self._left(number, f"{path}{name}/")
            else:
                yield path + name, self._bytes.get(number, b"")


@dataclass
class PowerlessWorld(World):
    """A world that is looked at as it would be after power was lost."""

    disk: Disk | None = None

    def copy(self) -> MemoryStore:
        assert self.disk is not None
        names = ((path.removeprefix("jobs/job/"), data) for path, data in self.disk.after_power_loss())
        return MemoryStore({name: data for name, data in names if is_key(name)})

    def check_collected(self, copy: MemoryStore | None = None) -> None:
        """Look at what is gone without a power loss, which may bring it back until the next collection."""
        super().check_collected(MemoryStore.copy_of(self.place()))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    monkeypatch.setattr(local, "os", disk)
    return disk


def live_through(setting: Setting, disk: Disk, *faults: Fault) -> World:
    """Play a story on a disk; before each call, check the files that a power failure would leave."""
    root = disk.top / "jobs" / "job"
    world = PowerlessWorld(
        lambda: LocalStore(root),
        engine(Toy),
        Faults(*faults),
        retain=setting.retain,
        growth=setting.growth,
        disk=disk,
    )

    def look(_call: Call) -> None:
        world.check()

    run = world.start()
    for position in setting.earlier:
        run.process(position)
        run.snapshot()
    run.drop()
    world.before = look
    setting.tell(Story(world))
    world.before = None
    world.finish()
    return world


@pytest.mark.fault("A12")
@pytest.mark.parametrize("setting", SETTINGS, ids=repr)
def test_nothing_that_counts_is_lost_with_the_power(setting: Setting, disk: Disk) -> None:
    world = live_through(setting, disk)

    assert world.copy().objects.items() >= {*contents(world.place())}, "what is there at the end is synced"


@pytest.mark.fault("C2")
@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS[SETTINGS[0]] if fault.kind != "throttled"][::FAULT_STRIDE], ids=str
)
def test_nothing_that_counts_is_lost_with_the_power_where_the_store_fails(fault: Fault, disk: Disk) -> None:
    assert live_through(SETTINGS[0], disk, fault).faults.fired


UNSYNCED = {
    "a file": Edit(local, "_write", "sync(file)", "pass"),
    "a new name": Edit(LocalStore, "_link", "self._sync(directory)", "pass"),
    "a new folder": Edit(LocalStore, "_enter", "self._sync(parent)", "pass"),
    "a new root": Edit(local, "_sync_folder", "os.fsync(directory)", "pass"),
}


@pytest.mark.fault("A12")
@pytest.mark.parametrize("what", UNSYNCED)
def test_it_is_found_that_something_is_not_synced(what: str, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    UNSYNCED[what](monkeypatch)

    with pytest.raises(Violation) as found:
        live_through(SETTINGS[0], disk)

    assert found.value.invariant in ("state", "floor", "fsck")
