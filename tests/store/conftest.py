"""The stores of the contract tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import malflow
from malflow.store.contract import Store
from malflow.store.opening import open_store
from malflow.store.remote import FsspecStore
from tests.kit.faulty_s3 import FaultyS3
from tests.servers.versitygw import Versitygw

_PLACES = count(1)
S3_PLACES = [
    pytest.param("s3", marks=pytest.mark.slow),
    pytest.param("gateway", marks=[pytest.mark.nightly, pytest.mark.servers]),
]


class LinkingFileSystem(LocalFileSystem):
    """A file system of somebody else's, which creates exclusively, and knows only fsspec's own errors."""

    protocol = "linking"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Write a file as a whole."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temp = target.parent / f".{target.name}{os.urandom(8).hex()}"
        temp.write_bytes(value)
        try:
            if mode == "create":
                os.link(temp, target)
            else:
                temp.replace(target)
        finally:
            temp.unlink(missing_ok=True)


@dataclass(frozen=True)
class Place:
    """The place of a store.

    Attributes:
        open: makes another store on the same place.
        plant: puts something there behind the store's back.
        rounds: how often a race is run.
        source: Python source of an expression that opens the store in another process, where one can.
    """

    open: Callable[[], Store]
    plant: Callable[[str, bytes], object]
    rounds: int
    source: str = ""


@pytest.fixture(scope="session")
def s3() -> Iterator[FaultyS3]:
    """Start one S3 server."""
    with FaultyS3() as server:
        yield server


@pytest.fixture(scope="session")
def s3_clients(s3: FaultyS3) -> list[Store]:
    """Open two stores, each with a client of its own: that takes long."""
    return _two_clients(s3)


@pytest.fixture(scope="session")
def gateway(versitygw: Versitygw) -> Iterator[FaultyS3]:
    """Return a server that checks signatures and creates exclusively by itself."""
    with FaultyS3(upstream=versitygw.options) as server:
        yield server


@pytest.fixture(scope="session")
def gateway_clients(gateway: FaultyS3) -> list[Store]:
    """Open two stores on it, each with a client of its own."""
    return _two_clients(gateway)


def moved(store: Any, url: str) -> Store:
    """Return a store with the same client at another place."""
    other = copy(store)
    other._root = url.removeprefix("s3://")
    return other  # type: ignore[no-any-return]


@pytest.fixture(params=["memory", "local", "generic", *S3_PLACES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return an empty place for a store."""
    places = {"memory": _memory, "local": _local, "generic": _generic, "s3": _s3, "gateway": _s3}
    return places[request.param](request, tmp_path)


@pytest.fixture
def store(place: Place) -> Store:
    """Return an empty store."""
    return place.open()


def run_python(source: str, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(malflow.__file__).parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [*prefix, sys.executable, "-c", source, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def _two_clients(server: FaultyS3) -> list[Store]:
    stores = [open_store(f"s3://{server.bucket}/x", server.options) for _ in range(2)]
    assert [store.list("") for store in stores] == [[], []]
    return stores


def _memory(_request: pytest.FixtureRequest, _tmp_path: Path) -> Place:
    url = f"memory://place{next(_PLACES)}/job"
    return Place(partial(open_store, url), lambda name, data: MemoryFileSystem().pipe_file(f"{url}/{name}", data), 150)


def _local(_request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    url = str(tmp_path / "new" / "job")
    return Place(partial(open_store, url), partial(_write, Path(url)), 150, f"open_store({url!r})")


def _generic(_request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    root = tmp_path / "job"
    return Place(lambda: FsspecStore(LinkingFileSystem(), str(root)), partial(_write, root), 50)


def _s3(request: pytest.FixtureRequest, _tmp_path: Path) -> Place:
    server: FaultyS3 = request.getfixturevalue(request.param)
    clients: list[Any] = request.getfixturevalue(f"{request.param}_clients")
    url = f"s3://{server.bucket}/place{next(_PLACES)}/job"

    def open_one() -> Store:
        clients.append(clients.pop(0))
        return moved(clients[0], url)

    return Place(
        open_one,
        lambda name, data: server.filesystem().pipe_file(f"{url}/{name}", data),
        12,
        f"open_store({url!r}, {server.options!r})",
    )


def _write(root: Path, name: str, data: bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
