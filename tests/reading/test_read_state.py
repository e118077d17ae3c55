"""`read_state`: the states of each kind, as a run that restores them has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, read_state
from malflow.sources import SingleIteratorSource
from tests.kit.backends import at_once


def count(backend: FsspecBackend, words: list[str], **options: Any) -> None:
    """Run a job that counts words."""

    def build(provider: StreamProvider) -> None:
        keyed = (
            provider.new_stream().source("words", SingleIteratorSource(words)).key_distribute("word", lambda m: m.value)
        )
        keyed.stateful_map("count", lambda word, _, n: (n + 1, n + 1), default=int).sink("out", VecSink())

    SingleThreadRuntime(build, backend, **options).execute()


def test_the_states_of_a_job_are_read_by_key_and_all(tmp_path: Path) -> None:
    backend = at_once(tmp_path)
    count(backend, ["a", "b", "a", "c", "a"], parallelism=3)
    assert dict(read_state(backend, "count")) == {"a": 3, "b": 1, "c": 1}
    assert read_state(backend, "count", key="a") == 3
    assert read_state(backend, "count", key="d", default=0) == 0
