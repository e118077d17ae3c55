"""The share that bounded sources have read is equal on every runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from malflow import StreamProvider
from malflow.connectors.files.json_source import TextFileSource
from malflow.events import TickFinished
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from malflow.testing import ScriptedSource


class Looks:
    """A listener that notes the shares after each tick."""

    def __init__(self) -> None:
        self.runtime: Any = None
        self.seen: list[dict[str, tuple[int, int]]] = []

    def on_event(self, event: object) -> None:
        """Note the shares."""
        if isinstance(event, TickFinished):
            self.seen.append(self.runtime.progress.shares)


def test_shares_grow_to_the_whole(any_parallelism: Any, tmp_path: Path) -> None:
    sizes = []
    for at in range(3):
        text = f"line {at}\n" * 50_000 * at
        (tmp_path / f"{at}.txt").write_text(text)
        sizes.append(len(text))

    def build_dataflow(provider: StreamProvider) -> None:
        files = [str(tmp_path / f"{at}.txt") for at in range(3)]
        provider.new_stream().source("files", TextFileSource(files)).sink("lines", VecSink())
        provider.new_stream().source("list", SingleIteratorSource([*range(100)])).sink("numbers", VecSink())
        provider.new_stream().source("unknown", ScriptedSource([1, 2])).sink("others", VecSink())

    looks = Looks()
    looks.runtime = any_parallelism(build_dataflow, FsspecBackend(str(tmp_path / "states")), listeners=[looks])
    looks.runtime.execute()
    assert looks.seen[-1] == {"files": (sum(sizes), sum(sizes)), "list": (100, 100)}
    assert all("unknown" not in it for it in looks.seen)
    read = [it["files"] for it in looks.seen if "files" in it]
    assert {whole for _, whole in read} == {sum(sizes)}
    assert [it for it, _ in read] == sorted(it for it, _ in read)
    assert all(0 <= it <= whole for it, whole in read)
    again = any_parallelism(build_dataflow, FsspecBackend(str(tmp_path / "states")))
    again.execute()
    assert again.progress.shares["files"] == (sum(sizes), sum(sizes)), "of a run that has nothing left to read"
