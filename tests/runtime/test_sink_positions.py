"""A file sink after any number of crashes: its file equals that of an undisturbed run."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.sinks import TextFileSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import in_memory
from tests.kit.counting import MOMENT

pytestmark = pytest.mark.slow

SIZE = 12


class Step(NamedTuple):
    """One run.

    Attributes:
        size: how many numbers there are by then.
        fails_at: the number at which it fails.
        parallelism: how many workers there are.
        keeps: whether a snapshot is taken after each tick.
        rescales_at: the number at which it is told to continue with another number of workers.
    """

    size: int
    fails_at: int
    parallelism: int
    keeps: bool
    rescales_at: int


steps = st.builds(
    Step, st.integers(0, SIZE), st.integers(0, SIZE), st.integers(1, 3), st.booleans(), st.integers(0, SIZE)
)


def run(step: Step, path: Path, backend: FsspecBackend, *, append: bool) -> None:
    def check(value: int) -> int:
        if value == step.fails_at:
            raise ValueError(f"it is {value}")
        if value == step.rescales_at:
            runtime.rescale(4 - step.parallelism)
        return value

    def build(provider: StreamProvider) -> None:
        script = [item for number in range(step.size) for item in (number, PAUSE)]
        numbers = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(script))).map("check", check)
        sums = numbers.key_distribute("key", lambda msg: msg.value % 3).stateful_map("sum", add, default=int)
        sums.sink("out", TextFileSink(path, append=append))

    runtime = SingleThreadRuntime(build, backend, MOMENT if step.keeps else None, step.parallelism)
    runtime.execute()


def add(_key: int, value: int, total: int) -> tuple[int, int]:
    return total + value, total + value


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.mark.fault("F7")
@settings(max_examples=settings().max_examples // 5)
@given(st.lists(steps, max_size=4).map(sorted), st.sampled_from(["out", "out.gz"]), st.booleans())
def test_a_file_is_that_of_an_undisturbed_run(
    tmp_path_factory: pytest.TempPathFactory, history: list[Step], name: str, append: bool
) -> None:
    folder: Any = tmp_path_factory.mktemp("run")
    expected, path = folder / "expected", folder / name
    run(Step(SIZE, -1, 1, False, -1), expected, in_memory(), append=False)
    backend = in_memory()
    for step in [*history, Step(SIZE, -1, 1, False, -1)]:
        try:
            run(step, path, backend, append=append)
        except OperatorError as error:
            assert "it is" in str(error)  # noqa: PT017 - not every run fails
    assert content(path) == content(expected)
