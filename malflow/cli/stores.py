"""The store of a job, from the path or URL that a command is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from malflow.cli.exits import CommandError, Exit
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import Wish
from malflow.snapshot.protocol.manifest import JOB
from malflow.snapshot.reading import wanted_manifest
from malflow.words import did_you_mean

__all__ = ["backend_at", "reading_backend", "store_options"]

_F = TypeVar("_F", bound=Callable[..., Any])


def store_options(command: _F) -> _F:
    """Add the argument that names the store, and the option that names the job in it."""
    for decorate in (
        click.option("--job", help="The job, if the store has several."),
        click.argument("url", metavar="PATH-OR-URL"),
    ):
        command = decorate(command)
    return command


def backend_at(url: str, job: str | None, *, trust: bool = True, codec: str = "pickle") -> FsspecBackend:
    """Return the persistence of a job.

    Args:
        url: the path or URL; on this machine, the folder of the job itself will do.
        job: the name of the job; None for the only one.
        trust: whether a store that others may write to is accepted, since no value is unpickled or all are trusted.
        codec: the codec of the states.

    Raises:
        GraphError: if it is not a store, or its pickles are not trusted.
        CommandError: if there is no such job.
    """
    if "://" not in url:
        url, job = _local(Path(url), job)
    backend = FsspecBackend(url, job=job or "default", allow_unsigned_pickle=trust, codec=codec)
    if backend.manifest_log().find() is None:
        raise CommandError(
            f"{backend!r} has no snapshots: no run has begun there; check the URL and --job", Exit.SNAPSHOT
        )
    return backend


def reading_backend(url: str, job: str | None, at: Wish, *, trust: bool) -> FsspecBackend:
    """Return the persistence of a job to read its states, with the codec that wrote them.

    Args:
        url: the path or URL.
        job: the name of the job; None for the only one.
        at: the snapshot.
        trust: whether to unpickle states that are not signed from a store that others may write to.

    Raises:
        GraphError: if it is not a store, or its pickles are not trusted.
        CommandError: if there is no such job.
        SnapshotError: if there is no such snapshot.
    """
    codec = wanted_manifest(backend_at(url, job), at)[1].codec
    if codec not in ("pickle", "msgpack"):
        raise CommandError(f"the states were written with codec '{codec}', which only the program knows", Exit.SNAPSHOT)
    return backend_at(url, job, trust=trust, codec=codec)


def _local(folder: Path, job: str | None) -> tuple[str, str | None]:
    """Return the folder of the jobs and the name of the job, if there is only one or the folder is its own."""
    try:
        is_folder = folder.is_dir()
    except OSError as error:  # a name that is too long, or a folder that is closed
        raise CommandError(f"there is no folder '{folder}': {error.strerror}", Exit.SNAPSHOT) from error
    if not is_folder:
        raise CommandError(f"there is no folder '{folder}'", Exit.SNAPSHOT)
    if job is None and (folder / JOB).is_file():
        return str(folder.resolve().parent), folder.resolve().name
    names = sorted(it.parent.name for it in folder.glob(f"*/{JOB}"))
    if job is not None and job not in names:
        raise CommandError(f"'{folder}' has no job '{job}'{did_you_mean(job, names)}", Exit.SNAPSHOT)
    if job is None and len(names) > 1 and "default" not in names:
        raise CommandError(f"'{folder}' has several jobs; write --job with one of {', '.join(names)}", Exit.USAGE)
    return str(folder), job or (names[0] if len(names) == 1 else None)
