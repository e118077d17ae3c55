"""Servers that return to an older state: an older copy of their data is restored, as from a backup."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tests.servers.server import Server, run
from tests.servers.watch import read_pid

__all__ = ["copied", "copied_folder", "keep_copy", "promote_copy", "put_back"]

_COPY = "kept"


def keep_copy(server: Server) -> None:
    """Keep a copy of what a server has now; it is stopped meanwhile."""
    server.stop()
    shutil.rmtree(server.folder / _COPY, ignore_errors=True)
    (server.folder / _COPY).mkdir()
    for path in _data(server):
        _copy(path, server.folder / _COPY / path.name)
    server.start()


def put_back(server: Server, before_start: Callable[[], object] = lambda: None) -> None:
    """Crash a server, and start it with the copy instead of what it has."""
    server.kill()
    for path in _data(server):
        shutil.rmtree(path)
        _copy(server.folder / _COPY / path.name, path)
    before_start()
    server.start()


def promote_copy(server: Server) -> None:
    """Put the copy of a Postgres server back and promote it, as a restore to a point in time: a new timeline begins."""
    import psycopg  # noqa: PLC0415 - only the extra has it

    def follow_nobody() -> None:
        [data] = _data(server)
        for name, text in (("standby.signal", ""), ("postgresql.auto.conf", "restore_command = '/bin/false'\n")):
            (data / name).write_text(text, encoding="utf-8")
            if server.user is not None:
                shutil.chown(data / name, server.user)

    put_back(server, follow_nobody)
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("select pg_promote()")


def copied(server: Server) -> Callable[[], None]:
    """Copy what a server has now, while it is suspended; return what crashes it, and starts it with the copy."""
    folder = next(path for number in count() if not (path := server.folder / f"copy-{number}").exists())
    found = read_pid(server.folder)
    assert found is not None
    processes = server.processes(found[0])
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    folder.mkdir()
    for path in _data(server):
        _copy(path, folder / path.name)
    for pid in processes:
        os.kill(pid, signal.SIGCONT)

    def back() -> None:
        server.kill()
        for path in _data(server):
            shutil.rmtree(path)
            _copy(folder / path.name, path)
        server.start()

    return back


def copied_folder(path: Path) -> Callable[[], None]:
    """Copy a folder or file, if it is there; return what puts the copy in its place, or removes what was not there."""
    copy = next(it for number in count() if not (it := path.with_name(f".{path.name}-copy-{number}")).exists())
    if path.exists():
        _copy(path, copy)
    else:
        copy.touch()  # the name is taken

    def back() -> None:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if copy.is_dir() or copy.stat().st_size:
            _copy(copy, path)

    return back


def _data(server: Server) -> list[Path]:
    found = [server.folder / name for name in ("data", "appendonlydir", "buckets", "attributes")]
    return [path.resolve() for path in found if path.exists()]


def _copy(source: Path, target: Path) -> None:
    run("cp", "-a", str(source), str(target))  # with owners, and attributes
