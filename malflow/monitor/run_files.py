"""The files by which others find the runs of this user on this machine.

Each monitored run has a file ``<id>.json`` and, while it runs, a control socket ``<id>.sock`` in a folder that only
this user can open. The file of a run that has ended stays for an hour; in that of a process that has died, whichever
process finds it first notes that it was killed.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

from malflow.monitor.documents import as_json, document
from malflow.runtime.owners import OWNER, Owner
from malflow.words import iso

__all__ = [
    "NoPlace",
    "RunFile",
    "clear_away",
    "folders",
    "found_runs",
    "new_id",
    "place",
    "remove",
    "socket_of",
    "write",
]

_log = logging.getLogger("malflow.monitor")

_LONGEST_FILE = 64 * 1024
"""The longest file in bytes: the description of a run takes a small part of it. The limit keeps foreign files out of
memory."""

_SHOWN: Final = 3
"""The most files to name, to fit the warning on a line; the others are counted."""

_told: set[Path] = set()
_LONGEST_SOCKET: Final = 103
"""The longest path of a socket, in bytes, on all systems."""
_KEPT = timedelta(hours=1)
_NAME = re.compile(r"(?P<run>[0-9a-f]{8})\.json")
_LEFTOVER = re.compile(r"[0-9a-f]{8}\.sock|\.[0-9a-f]{8}\.new")
_OWNER = re.compile(OWNER)
_YOUNG = 60.0
"""Seconds in which a file without its run's file may belong to a run that begins."""


class NoPlace(Exception):
    """The files of a run have no place; the text is the reason."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """The content of a run's file; nothing in it is secret.

    Attributes:
        run: the id of the run.
        job: the name of its job.
        runtime: the kind of its runtime.
        owner: the process that started it, as text.
        started: when, as ISO text in UTC.
        script: the path of the script, or None.
        page: the address of the page that shows it, or None.
        state: where its state is kept, without the job and without secrets; None if it keeps none.
        ended: when it ended; None while it runs.
        status: ``ended``, ``failed``, ``abandoned`` if its process ended before it, or ``killed``; None while it runs.
    """

    run: str
    job: str
    runtime: str
    owner: str
    started: str
    script: str | None = None
    page: str | None = None
    state: str | None = None
    ended: str | None = None
    status: str | None = None

    @property
    def name(self) -> str:
        """The name of the run for people: its job, or its script if the job has no name of its own."""
        return Path(self.script).stem if self.job == "default" and self.script else self.job

    @property
    def process(self) -> Owner | None:
        """The process that started it; None if the text is not that of one."""
        return Owner.within(self.owner, _OWNER)

    @property
    def pid(self) -> int | None:
        """The id of that process."""
        process = self.process
        return None if process is None else process.pid

    def closed(self, status: str) -> RunFile:
        """Return the content after the end of the run."""
        return replace(self, ended=iso(datetime.now(UTC)), status=status, page=None)


def folders() -> list[Path]:
    """Return the folders where runs of this user may have files: in its runtime folder, and the temporary one."""
    temporary = Path(tempfile.gettempdir(), f"malflow-{os.geteuid()}")
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    return [Path(own, "malflow"), temporary] if Path(own).is_absolute() else [temporary]


def place() -> Path:
    """Return a folder for a new run, made if it is missing.

    Raises:
        NoPlace: if no folder is closed to others and has a path that is short enough for a socket.
    """
    reasons = []
    for folder in folders():
        try:
            return _usable(folder)
        except (OSError, NoPlace) as error:
            reasons.append(f"{folder}: {error}")
    raise NoPlace("; ".join(reasons))


def _usable(folder: Path) -> Path:
    if len(os.fsencode(folder / "12345678.sock")) > _LONGEST_SOCKET:
        raise NoPlace("its path is too long for a socket")
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    reason = _distrusted(folder)
    if reason is not None:
        raise NoPlace(reason)
    return folder


def _distrusted(folder: Path) -> str | None:
    """Return why a folder is not used, to believe nobody else's files; None if it is ours alone."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "other users can open it" if found.st_mode & 0o077 else None


def new_id() -> str:
    """Return the id of a new run."""
    return secrets.token_hex(4)


def socket_of(folder: Path, run: str) -> Path:
    """Return the path of a run's control socket."""
    return folder / f"{run}.sock"


def write(folder: Path, content: RunFile) -> None:
    """Write the file of a run, as a whole or not at all.

    Raises:
        OSError: if it can't be written.
    """
    new = folder / f".{content.run}.new"
    try:
        with _created(new) as file:
            _write_all(file, as_json(document("run_file", asdict(content))))
        new.replace(folder / f"{content.run}.json")
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


@contextmanager
def _created(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def remove(folder: Path, run: str) -> None:
    """Remove the files of a run that are there."""
    for path in (folder / f"{run}.json", socket_of(folder, run)):
        with suppress(OSError):
            path.unlink()


def found_runs() -> list[tuple[Path, RunFile]]:
    """Return the runs of this user with their folders, the oldest first; files of dead processes are removed."""
    found = [(folder, content) for folder in folders() for content in _runs_in(folder)]
    return sorted(found, key=lambda it: (it[1].started, it[1].run))


def _runs_in(folder: Path) -> Iterator[RunFile]:
    skipped: dict[str, Exception] = {}
    for name in _names(folder):
        match = _NAME.fullmatch(name)
        content = None if match is None else _read(folder / name, match["run"], skipped)
        if content is None:
            continue
        if _is_over(content):
            remove(folder, content.run)
        elif content.ended is None and content.process is not None and content.process.is_dead:
            yield _killed(folder, content)
        else:
            yield content
    _tell(folder, skipped)


def _tell(folder: Path, skipped: Mapping[str, Exception]) -> None:
    """Warn of skipped files, once for each file in a process: runs are looked for again and again."""
    new = {name: error for name, error in skipped.items() if folder / name not in _told}
    if new:
        _told.update(folder / name for name in new)
        reasons = "; ".join(f"{name}: {error}" for name, error in islice(new.items(), _SHOWN))
        more = f"; and {len(new) - _SHOWN} more" if len(new) > _SHOWN else ""
        _log.warning("files in %r do not describe runs, and are skipped: %s%s", str(folder), reasons, more)


def _names(folder: Path) -> list[str]:
    """Return the names in a folder, if it is ours alone."""
    try:
        return sorted(os.listdir(folder)) if _distrusted(folder) is None else []  # noqa: PTH208 - only the names
    except OSError:
        return []


def _is_over(content: RunFile) -> bool:
    """Whether nobody needs the file any longer, since the run ended an hour ago."""
    ended = None if content.ended is None else _moment(content.ended)
    return content.ended is not None and (ended is None or datetime.now(UTC) - ended > _KEPT)


def _killed(folder: Path, content: RunFile) -> RunFile:
    """Note in the file of a run that its process has died, at the time at which this is found; return the content."""
    closed = content.closed("killed")
    with suppress(OSError):
        write(folder, closed)
    with suppress(OSError):
        socket_of(folder, content.run).unlink()
    return closed


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _read(path: Path, run: str, skipped: dict[str, Exception]) -> RunFile | None:
    """Return the content of a run's file; None for any other, with the reason in `skipped`."""
    try:
        content = json.loads(_bytes_of(path))
        return _checked(content, run)
    except FileNotFoundError:  # the run ends just now
        return None
    except (OSError, ValueError, RecursionError, NoPlace) as error:
        skipped[path.name] = error
        return None


def _bytes_of(path: Path) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise NoPlace("it is not a file of this user")
        data = os.read(file, _LONGEST_FILE + 1)
    finally:
        os.close(file)
    if len(data) > _LONGEST_FILE:
        raise NoPlace("it is too long")
    return data


def _checked(content: Any, run: str) -> RunFile:
    if not isinstance(content, dict) or content.get("malflow") != 1 or content.get("kind") != "run_file":
        raise NoPlace("it has another form")
    facts: dict[str, Any] = {name: content.get(name) for name in RunFile.__dataclass_fields__}
    needed = ("run", "job", "runtime", "owner", "started")
    if facts["run"] != run or not all(isinstance(facts[name], str) for name in needed):
        raise NoPlace("it has another form")
    if not all(it is None or isinstance(it, str) for it in facts.values()):
        raise NoPlace("it has another form")
    return RunFile(**facts)


def clear_away() -> None:
    """Remove the files of dead processes, and sockets and half-written files that no run's file belongs to."""
    found_runs()
    for folder in folders():
        for name in _names(folder):
            if _LEFTOVER.fullmatch(name) and not (folder / f"{name.lstrip('.')[:8]}.json").exists():
                _remove_leftover(folder / name)


def _remove_leftover(path: Path) -> None:
    with suppress(OSError):
        if time.time() - path.lstat().st_mtime > _YOUNG and not _answers(path):
            path.unlink()


def _answers(path: Path) -> bool:
    """Whether somebody listens on a socket."""
    if path.suffix != ".sock":
        return False
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(0.5)
        try:
            caller.connect(str(path))
        except OSError as error:
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTSOCK)
    return True
