"""Removal of files that killed runs left behind, by a later run.

The name of a folder encodes its owner: a process, and the machine or container it belongs to; see
`malflow.runtime.spark.changelog.leftovers`.

- Whether an owner on this machine and in this container has ended is known. Folders of ended owners are removed at
  once, temporary ones as well as those in the user's scratch folder; those of live owners stay.
- Whether a process on another machine, or in a container that no longer exists, is alive can't be known here. Its
  folder in a scratch folder is removed once its run has lost its job to this one and the folder has not changed for an
  hour of this run. If the run is alive after all, this does no harm: a failing run checks whether it has lost its job
  before it restarts, and ends with the `FencedError` that it would have raised anyway.
- The Unix sockets between Java and Python have no owner in their names. One that nobody has bound any more is removed.
- All other folders stay: those with other names, of other users, from before the machine's last boot, and of runs on
  other machines without a persistence or with another job.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from malflow.runtime.owners import OWNER, Owner
from malflow.runtime.spark.changelog.changelog import RUNS, ScratchFolder
from malflow.runtime.spark.session.unix_sockets import sweep_sockets
from malflow.store.contract import KeyMissing
from malflow.store.filesystem import is_local, local_path
from malflow.store.opening import open_store

__all__ = [
    "OF_QUERY",
    "OF_SCRATCH",
    "Claimed",
    "Sweep",
    "owner_of_run",
    "owner_of_temporary",
    "remove_run",
    "remove_shuffles",
    "run_name",
    "shuffle_of",
    "temporary_folder",
]

OF_QUERY: Final = "malflow-query"
OF_SCRATCH: Final = "malflow-scratch"

_RUN = re.compile(rf"[0-9a-f]{{16}}-{OWNER}")
_TEMPORARY = re.compile(rf"(?:{OF_QUERY}|{OF_SCRATCH})-{OWNER}-[a-z0-9_]{{8}}")


def owner_of_run(name: str) -> Owner | None:
    """Return the owner in the name of a run's folder below ``scratch=``; None for any other name."""
    return Owner.within(name, _RUN)


def owner_of_temporary(name: str) -> Owner | None:
    """Return the owner in the name of a temporary folder; None for any other name."""
    return Owner.within(name, _TEMPORARY)


def run_name() -> str:
    """Return a new run id that encodes its owner."""
    return f"{secrets.token_hex(8)}-{Owner.here()}"


def temporary_folder(kind: str) -> str:
    """Create a temporary folder with a name that encodes its owner; return its path."""
    return tempfile.mkdtemp(prefix=f"{kind}-{Owner.here()}-")


_log = logging.getLogger("malflow.runtime")

_SILENCE = 3600.0
"""Seconds without a change after which the folder of a run that has lost its job is removed."""

_PATIENCE = 10.0
"""Seconds that closing waits for the sweep. Less: it may outlive the run; more: a slow store delays the end."""

_NOTE = "claim"
_NOTE_LIMIT = 4096
"""Bytes of a note: a note has some hundred, so a longer file is something else, and is not read whole."""


class Claimed(NamedTuple):
    """The job and the claim (fencing token) that a run holds.

    Attributes:
        job: the uuid of the job.
        epoch: the number of the claim; the run with the greatest one holds the job.
    """

    job: str
    epoch: int


class Sweep:
    """Removes leftovers of ended runs in the background; its errors never end a run.

    Args:
        place: the place of this run's changelog.
        is_temporary: whether the scratch folder belongs to this run alone.
        sockets: the folder of the driver's Unix sockets; empty if there are none.
    """

    def __init__(self, place: ScratchFolder, *, is_temporary: bool, sockets: str = "") -> None:
        self._sockets = sockets
        self._place = place
        self._is_temporary = is_temporary
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, claimed: Claimed | None) -> None:
        """Start sweeping.

        Args:
            claimed: the claim of this run; None without persistence.
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
            sweep_sockets(self._sockets)
            if not self._is_temporary:
                self._sweep_scratch(_Runs(self._place), claimed)
        except Exception as error:  # noqa: BLE001 - only files that nobody reads are left
            _log.debug("leftovers of earlier runs could not be removed: %s: %s", type(error).__name__, error)

    def _sweep_scratch(self, runs: _Runs, claimed: Claimed | None) -> None:
        if claimed is not None:
            runs.note(self._place.run, claimed)
        there = runs.found()
        for name in there:
            if self._over.is_set():
                return
            owner = owner_of_run(name)
            if owner is not None and owner.is_dead:
                runs.remove(name)
        if claimed is not None:
            self._sweep_superseded(runs, there, claimed)

    def _sweep_superseded(self, runs: _Runs, there: Mapping[str, frozenset[str]], claimed: Claimed) -> None:
        """Remove the folders of runs on other machines that have lost the job to this run and are silent."""
        lost = [name for name in there if _is_elsewhere(name) and runs.lost(name, claimed)]
        if not lost or self._over.wait(_SILENCE):
            return
        now = runs.found()
        for name in lost:
            if now.get(name) == there[name]:
                runs.remove(name)


class _Runs:
    """The folders of runs in a scratch folder."""

    def __init__(self, place: ScratchFolder) -> None:
        self._place = place
        self._store = open_store(place.url, place.options, durable=False)
        self._folder = _local_folder(place)

    def found(self) -> Mapping[str, frozenset[str]]:
        """Return the files of each run, without files of other users of this machine."""
        there: dict[str, set[str]] = {}
        for key in self._store.list(RUNS):
            there.setdefault(key.removeprefix(RUNS).partition("/")[0], set()).add(key)
        if self._folder is not None:
            there = {name: there.get(name, set()) for name in _own_folders(self._folder)}
        return {name: frozenset(keys) for name, keys in there.items() if owner_of_run(name)}

    def note(self, run: str, claimed: Claimed) -> None:
        """Record a run's claim for later runs."""
        self._store.put_new(_note_of(run), json.dumps(claimed._asdict()).encode())

    def lost(self, run: str, claimed: Claimed) -> bool:
        """Whether another run has lost its job to the run with this claim."""
        try:
            told = json.loads(self._store.get(_note_of(run), _NOTE_LIMIT))
            return bool(told["job"] == claimed.job and told["epoch"] < claimed.epoch)
        except (KeyMissing, ValueError, TypeError, KeyError):
            return False

    def remove(self, run: str) -> None:
        """Remove the folder of a run."""
        remove_run(self._place, run)
        _log.info("removed the leftovers of run %s, which has ended, from the scratch folder", run)


def remove_run(place: ScratchFolder, run: str) -> None:
    """Remove the folder of a run from a scratch folder.

    Raises:
        StoreError: if the folder can't be removed.
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
        owner = owner_of_temporary(name)
        if owner is not None and owner.is_dead:
            shutil.rmtree(root / name, ignore_errors=True)
            _log.info("removed '%s', left by a killed run", root / name)


def _own_folders(root: Path) -> Iterator[str]:
    """Yield the names of this user's folders in a folder, without symbolic links."""
    with suppress(FileNotFoundError), os.scandir(root) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    yield entry.name


def _local_folder(place: ScratchFolder) -> Path | None:
    return Path(local_path(place.url), RUNS) if is_local(place.url) else None


def _is_elsewhere(run: str) -> bool:
    owner = owner_of_run(run)
    return owner is not None and not owner.is_here


def _note_of(run: str) -> str:
    return f"{RUNS}{run}/{_NOTE}"


def shuffle_of(exchanged: Any) -> int:
    """Return the id of the exchange that makes Java's RDD."""
    number: int = exchanged.rdd().dependencies().head().shuffleId()
    return number


def remove_shuffles(context: Any, shuffles: Iterable[int]) -> None:
    """Remove the files of exchanges; Spark would do so once Java collects garbage, so hardly ever."""
    with suppress(Exception):  # then Spark does so later
        cleaner = context._jsc.sc().cleaner()  # noqa: SLF001 - PySpark does not expose it
        for shuffle in shuffles:
            cleaner.get().doCleanupShuffle(shuffle, False)
