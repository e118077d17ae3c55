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
        self.folder = Path(folder)
        self.claim = 0

    def encode(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> list[str]:
        return [json.dumps(value) for value in values]

    def open_writer(self, share: Share) -> JsonWriter:
        name = f"{self.claim:06d}-{share.transaction:06d}-{share.number:03d}-{share.token}"
        return JsonWriter(self.folder / f"{name}.part")

    def fence(self, owner: SinkOwner) -> int:
        super().fence(owner)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.claim = owner.claim
        self._check()
        (self.folder / "claim").write_text(f"{owner.claim}")
        ledger = self.folder / "done"
        return int(ledger.read_text()) if ledger.exists() else 0

    def commit(self, handles: Sequence[tuple[int, Sequence[str]]]) -> None:
        self._check()
        for transaction, names in handles:
            for name in names:
                if (self.folder / f"{name}.part").exists():
                    (self.folder / f"{name}.part").rename(self.folder / f"{name}.json")
                elif not (self.folder / f"{name}.json").exists():
                    raise FileNotFoundError(f"{name} is gone")
            (self.folder / "done").write_text(f"{transaction}")

    def abort(self, keep: Sequence[tuple[int, Sequence[str]]]) -> None:
        super().abort(keep)
        kept = {f"{name}.part" for _, names in keep for name in names}
        for path in self.folder.glob("*.part"):
            if path.name not in kept and int(path.name[:6]) <= self.claim:
                path.unlink()

    def _check(self) -> None:
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
    return [json.loads(line) for path in sorted(folder.glob("*.json")) for line in path.read_text().splitlines()]
