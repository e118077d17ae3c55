"""Runs stopped anywhere, each resuming from the last one's state, on any number of workers, equal one whole run."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import CsvSource, JsonLinesSource, StatefulSource, TextFileSource
from tests.kit.backends import in_memory, kept_states

pytestmark = pytest.mark.slow

RECORDS = 4_000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the same records as text, CSV and JSON lines, plain and compressed."""
    root = tmp_path_factory.mktemp("logs")
    for half in (0, 1):
        words = [f"wörd-{number % 7}" for number in range(half * RECORDS, (half + 1) * RECORDS)]
        (root / f"{half}.txt").write_text("\n".join(words), encoding="utf-8")
        rows = "".join(f'"{word}","a\nb"\n' for word in words)
        with gzip.open(root / f"{half}.csv.gz", "wt", encoding="utf-8") as file:
            file.write(f"word,other\n{rows}")
        (root / f"{half}.jsonl").write_text("".join(json.dumps({"word": w}) + "\n" for w in words), encoding="utf-8")
    return root


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["txt", "csv.gz", "jsonl"]),
    stops=st.lists(st.integers(1, 2 * RECORDS), max_size=3),
    parallelism=st.lists(st.integers(1, 4), min_size=4, max_size=4),
)
def test_counts_are_exact_however_often_the_run_is_stopped(
    logs: Path, kind: str, stops: list[int], parallelism: list[int]
) -> None:
    store = in_memory()
    for stop, workers in zip([*stops, None], parallelism, strict=False):
        results: VecSink[Any, Any, Any] = VecSink()
        _count_words(logs / f"*.{kind}", store, stop, workers, results)
    assert kept_states(store, "count") == Counter(f"wörd-{number % 7}" for number in range(2 * RECORDS))


def _count_words(path: Path, store: FsspecBackend, stop: int | None, parallelism: int, results: Any) -> None:
    sources = {".txt": TextFileSource, ".gz": CsvSource, ".jsonl": JsonLinesSource}
    seen = 0

    def count_until_stop(msg: Any, ctx: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == stop:
            runtime.stop()

    def build_dataflow(provider: StreamProvider) -> None:
        records = provider.new_stream().source("files", StatefulSource(sources[path.suffix](path)))
        words = records.inspect("stop", count_until_stop).map("word", lambda v: v if isinstance(v, str) else v["word"])
        keyed = words.key_distribute("by word", lambda msg: msg.value)
        keyed.stateful_map("count", lambda key, word, n: (n + 1, n + 1), default=int).sink("results", results)

    runtime = SingleThreadRuntime(build_dataflow, store, parallelism=parallelism)
    runtime.execute()
