"""A sink of your own that the workers of Spark write, exactly once: a folder of JSON files.

docs/distributed_sinks.md has the rules, and `assert_sink` of `malflow.testing` checks them. Two things are missing:
`seal` should sync the file to disk, and between `check` and `rename` another run may take over.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import FencedError
from malflow.sinks import DistributedSinkImpl, Share, SinkOwner
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource


class JsonFiles(DistributedSinkImpl):
    """Write a file for each share of a transaction."""

    def __init__(self, folder: str) -> None:
        self.root = folder

    def encode(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> str:
        """Return the lines of a batch: on a worker, in a tick."""
        return "".join(f"{json.dumps(value)}\n" for value in values)

    def open_writer(self, share: Share) -> JsonWriter:
        """Begin a share: on a worker, in a snapshot. The token makes the name unique."""
        return JsonWriter(self.folder / f"{self.claim:06d}-{share.transaction}-{share.number}-{share.token}.part")

    def fence(self, owner: SinkOwner) -> Any:
        """Take the folder over: the rest is on the driver. What it sets, the workers have too."""
        super().fence(owner)
        self.folder, self.claim = Path(self.root, owner.name), owner.claim
        self.folder.mkdir(parents=True, exist_ok=True)
        self.check()
        (self.folder / "claim").write_text(f"{self.claim}")

    def commit(self, handles: Iterable[Any]) -> None:
        """Make shares visible, however often it is called."""
        self.check()
        for _, names in handles:
            for name in names:
                if not (self.folder / f"{name}.json").exists():
                    (self.folder / f"{name}.part").rename(self.folder / f"{name}.json")

    def abort(self, keep: Sequence[tuple[int, Sequence[Any]]]) -> None:
        """Remove the shares that no snapshot has, and nothing of later claims."""
        super().abort(keep)
        kept = {name for _, names in keep for name in names}
        for path in self.folder.glob("*.part"):
            if path.stem not in kept and int(path.name[:6]) <= self.claim:
                path.unlink()

    def check(self) -> None:
        """Fail if a later run has the folder."""
        claim = self.folder / "claim"
        if claim.exists() and int(claim.read_text()) > self.claim:
            raise FencedError(f"another run has '{self.folder}'")


class JsonWriter:
    """Writes a share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pieces: list[str] = []

    def write(self, piece: str) -> None:
        """Take a piece."""
        self.pieces.append(piece)

    def seal(self) -> str:
        """Make the share durable, but not visible."""
        self.path.write_text("".join(self.pieces))
        return self.path.stem

    def discard(self) -> None:
        """Remove the share."""
        self.path.unlink(missing_ok=True)


def read(folder: str) -> list[Any]:
    """Return what is visible."""
    paths = sorted(Path(folder).rglob("*.json"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:

        def build(provider: StreamProvider) -> None:
            numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(4)))
            numbers.map("row", lambda n: {"n": n}).sink("rows", JsonFiles(f"{folder}/out"))

        SingleThreadRuntime(build, FsspecBackend(f"{folder}/state")).execute()
        print(read(f"{folder}/out"))


if __name__ == "__main__":
    main()
