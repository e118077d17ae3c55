"""Parts whose name differs from the snapshot: their positions follow, whatever the type of a part."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import MAX, SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import ScriptedSource


class Renaming(ScriptedSource):
    """A source whose parts may have had other names."""

    new: dict[Any, Any]

    def present_part(self, part: Any) -> Any:
        return self.new.get(part, part)


@pytest.mark.parametrize("part", [(), ("part", "a"), ("part",), "a", 0, (1, ("part", 2))], ids=repr)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_positions_follow_a_part_to_its_new_name(part: Any, parallelism: int) -> None:
    backend = FsspecBackend("memory://part-names", job=f"job-{abs(hash(repr((part, parallelism))))}")

    def read(name: Any, values: list[int], renamed: dict[Any, Any]) -> list[int]:
        out: VecSink[Any, int, Any] = VecSink()
        source = Renaming({name: values, "other": values})
        source.new = renamed

        def build(provider: StreamProvider) -> None:
            provider.new_stream().source("numbers", source).sink("out", out)

        SingleThreadRuntime(build, backend, parallelism=parallelism).execute()
        return sorted(out.values)

    assert read("before", [1, 2], {}) == [1, 1, 2, 2]
    assert read(part, [1, 2, 3], {"before": part}) == [3, 3]
    assert read("after", [1, 2, 3, 4], {part: "after"}) == [4, 4]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_epochs_before_rounding_follow_a_part(parallelism: int) -> None:
    backend = FsspecBackend("memory://part-epochs", job=f"job-{parallelism}")
    epochs: list[Any] = []

    def read(name: str, count: int, renamed: dict[Any, Any]) -> None:
        source = Renaming({name: [0] * count})
        source.new = renamed

        def build(provider: StreamProvider) -> None:
            stream = provider.new_stream().source("numbers", source)
            on_time, late = stream.generate_epochs("epochs", lambda _, last: 1 if last is None else last + 1, every=4)
            late.sink("late", VecSink())
            on_time.inspect_frontier("see", lambda epoch, _: epochs.append(epoch))

        SingleThreadRuntime(build, backend, parallelism=parallelism).execute()

    read("before", 6, {})
    read("after", 9, {"before": "after"})
    assert sorted({epoch for epoch in epochs if epoch is not MAX}) == [0, 4, 8]
