"""A distributed sink written from its contract alone: a folder of JSON files, one for each share of a transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from malflow.errors import FencedError
from malflow.sinks import DistributedSinkImpl, Share, SinkOwner


class JsonFiles(DistributedSinkImpl[Any, Any, Any]):
    """Write values to JSON files in a local folder; a file that ends with ``.json`` is visible."""

    def __init__(self, folder: str) -> None:
        self.root = self.folder = Path(folder)
        self.claim = 0

    def encode(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> list[str]:
        return [json.dumps(value) for value in values]

    def open_writer(self, share: Share) -> JsonWriter:
        name = f"{self.claim:06d}-{share.transaction:06d}-{share.number:03d}-{share.token}"
        return JsonWriter(self.folder / f"{name}.part")

    def fence(self, owner: SinkOwner) -> int:
        super().fence(owner)
        self.owner, self.folder, self.claim = owner, self.root / owner.name, owner.claim
        self.folder.mkdir(parents=True, exist_ok=True)
        self.check()
        (self.folder / "claim").write_text(f"{owner.claim}")
        done = self.folder / "done"
        return int(done.read_text()) if done.exists() else 0

    def commit(self, handles: Sequence[tuple[int, Sequence[str]]]) -> None:
        self.check()
        for transaction, names in handles:
            for name in names:
                staged, visible = self.folder / f"{name}.part", self.folder / f"{name}.json"
                if staged.exists():
                    staged.rename(visible)
                elif not visible.exists():
                    raise FileNotFoundError(f"{staged} is gone")
            (self.folder / "done").write_text(f"{transaction}")

    def abort(self, keep: Sequence[tuple[int, Sequence[str]]]) -> None:
        super().abort(keep)
        kept = {f"{name}.part" for _, names in keep for name in names}
        for path in self.folder.glob("*.part"):
            if path.name not in kept and int(path.name[:6]) <= self.claim:
                path.unlink()

    def check(self) -> None:
        claim = self.folder / "claim"
        if claim.exists() and int(claim.read_text()) > self.claim:
            raise FencedError(f"another run has {self.folder}")


class JsonWriter:
    """Writes one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []

    def write(self, piece: list[str]) -> None:
        self.lines += piece

    def seal(self) -> str:
        self.path.write_text("\n".join(self.lines))
        return self.path.stem

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)


def read_json_files(folder: Path) -> list[Any]:
    """Return the visible values, in the order of files."""
    return [json.loads(line) for path in sorted(folder.rglob("*.json")) for line in path.read_text().splitlines()]
