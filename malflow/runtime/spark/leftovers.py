"""What runs that were killed have left behind, which a later run removes.

The names of folders tell their owner: a process, and where its number means something (`malflow.runtime.spark.owners`).

- Where that is here it is known whether the process has ended. If it has, its folders go at once: temporary ones, and
  those in a scratch folder of the user's. While it lives they stay.
- Whether a process of another machine lives, or one of a container that is no more, nobody here can know. The folder of
  such a run in a scratch folder goes where the run has lost its job to this one, and nothing in the folder has changed
  for an hour in which this run looked on. Should it live in spite of that, no harm is done: a run that fails looks
  whether it has lost its job before it starts again, and ends with the `FencedError` that it was to end with anyway.
- Everything else stays: what has another name, what belongs to another user, what was left before a machine was started
  again or by a run on another one that had no persistence or another job.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from malflow.filesystem import is_local, local_path
from malflow.runtime.spark.changelog import RUNS, ScratchPlace
from malflow.runtime.spark.owners import Owner
from malflow.store.contract import KeyMissing
from malflow.store.opening import open_store

__all__ = ["Claimed", "Sweep", "remove_run"]

_log = logging.getLogger("malflow.runtime")

_SILENCE = 3600.0
"""Seconds in which nothing changes in the folder of a run that has lost its job before it goes."""

_PATIENCE = 10.0
_NOTE = "claim"
_NOTE_LIMIT = 4096


class Claimed(NamedTuple):
    """What a run holds.

    Attributes:
        job: the uuid of the job.
        epoch: the number of its claim: the run with the greatest one has the job.
    """

    job: str
    epoch: int


class Sweep:
    """Removes in the background what runs that are over have left. What goes wrong ends no run.

    Args:
        place: where the changes of this run lie.
        is_temporary: whether that folder is this run's alone.
    """

    def __init__(self, place: ScratchPlace, *, is_temporary: bool) -> None:
        self._place = place
        self._is_temporary = is_temporary
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, claimed: Claimed | None) -> None:
        """Start to sweep.

        Args:
            claimed: what the run holds; None where it keeps nothing.
        """
        self._thread = threading.Thread(target=self._run, args=(claimed,), name="malflow-sweep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop sweeping."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _run(self, claimed: Claimed | None) -> None:
        try:
            _sweep_temporary()
            if not self._is_temporary:
                self._sweep_scratch(_Runs(self._place), claimed)
        except Exception as error:  # noqa: BLE001 - it is only about what nobody reads any more
            _log.debug("what earlier runs have left was not swept: %s: %s", type(error).__name__, error)

    def _sweep_scratch(self, runs: _Runs, claimed: Claimed | None) -> None:
        if claimed is not None:
            runs.note(self._place.run, claimed)
        there = runs.found()
        for name in there:
            if self._over.is_set():
                return
            owner = Owner.of_run(name)
            if owner is not None and owner.is_dead:
                runs.remove(name)
        if claimed is not None:
            self._sweep_superseded(runs, there, claimed)

    def _sweep_superseded(self, runs: _Runs, there: Mapping[str, frozenset[str]], claimed: Claimed) -> None:
        """Remove the folders of runs elsewhere that have lost the job to this one, and do nothing any more."""
        lost = [name for name in there if _is_elsewhere(name) and runs.lost(name, claimed)]
        if not lost or self._over.wait(_SILENCE):
            return
        now = runs.found()
        for name in lost:
            if now.get(name) == there[name]:
                runs.remove(name)


class _Runs:
    """The folders of runs in a scratch folder."""

    def __init__(self, place: ScratchPlace) -> None:
        self._place = place
        self._store = open_store(place.url, place.options, durable=False)
        self._folder = _local_folder(place)

    def found(self) -> Mapping[str, frozenset[str]]:
        """List what is there, by run; nothing of other users of this machine."""
        there: dict[str, set[str]] = {}
        for key in self._store.list(RUNS):
            there.setdefault(key.removeprefix(RUNS).partition("/")[0], set()).add(key)
        if self._folder is not None:
            there = {name: there.get(name, set()) for name in _own_folders(self._folder)}
        return {name: frozenset(keys) for name, keys in there.items() if Owner.of_run(name)}

    def note(self, run: str, claimed: Claimed) -> None:
        """Write down what a run holds, for those that come later."""
        self._store.put_new(_note_of(run), json.dumps(claimed._asdict()).encode())

    def lost(self, run: str, claimed: Claimed) -> bool:
        """Whether another run has lost its job to the one that holds it now."""
        try:
            told = json.loads(self._store.get(_note_of(run), _NOTE_LIMIT))
            return bool(told["job"] == claimed.job and told["epoch"] < claimed.epoch)
        except (KeyMissing, ValueError, TypeError, KeyError):
            return False

    def remove(self, run: str) -> None:
        """Remove the folder of a run."""
        remove_run(self._place, run)
        _log.info("removed what run %s, which is over, had left in the scratch folder", run)


def remove_run(place: ScratchPlace, run: str) -> None:
    """Remove the folder of a run in a scratch folder.

    Raises:
        StoreError: if it can't be removed.
    """
    folder = _local_folder(place)
    if folder is not None:
        shutil.rmtree(folder / run, ignore_errors=True)
        return
    store = open_store(place.url, place.options, durable=False)
    for key in store.list(f"{RUNS}{run}/"):
        store.delete(key)


def _sweep_temporary() -> None:
    root = Path(tempfile.gettempdir())
    for name in _own_folders(root):
        owner = Owner.of_temporary(name)
        if owner is not None and owner.is_dead:
            shutil.rmtree(root / name, ignore_errors=True)
            _log.info("removed '%s', which a run that was killed had left", root / name)


def _own_folders(root: Path) -> Iterator[str]:
    """Iterate over the names of this user's folders in a folder; links are none."""
    with suppress(FileNotFoundError), os.scandir(root) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    yield entry.name


def _local_folder(place: ScratchPlace) -> Path | None:
    return Path(local_path(place.url), RUNS) if is_local(place.url) else None


def _is_elsewhere(run: str) -> bool:
    owner = Owner.of_run(run)
    return owner is not None and not owner.is_here


def _note_of(run: str) -> str:
    return f"{RUNS}{run}/{_NOTE}"
