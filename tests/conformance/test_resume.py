"""Runs of a job that end, fail and continue with more input equal one whole run: on every runtime."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import CsvSource, JsonLinesSource, SingleIteratorSource, TextFileSource
from tests.conformance.dataflow import count
from tests.kit.backends import kept_states
from tests.kit.counting import MOMENT

FORMATS: dict[str, Callable[[Path], Any]] = {
    "txt": TextFileSource,
    "csv.gz": CsvSource,
    "jsonl": JsonLinesSource,
}
WORDS = [f"wörd-{number % 7}" for number in range(6_000)]
POISON = "fails"


def write(folder: Path, words: Sequence[str], *, header: bool) -> None:
    """Append records to a file of each format, gzip in a member of its own."""
    with (folder / "0.txt").open("a", encoding="utf-8") as text:
        text.writelines(f"{word}\n" for word in words)
    with gzip.open(folder / "0.csv.gz", "at", encoding="utf-8") as table:
        table.write(("word,other\n" if header else "") + "".join(f'"{word}","a\nb"\n' for word in words))
    with (folder / "0.jsonl").open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps({"word": word}) + "\n" for word in words)


def counting(folder: Path, *, fails: bool) -> Callable[[StreamProvider], None]:
    """Build a dataflow that counts the words of each format."""

    def word_of(value: Any) -> str:
        word: str = value if isinstance(value, str) else value["word"]
        if fails and word == POISON:
            raise ValueError("it is poisoned")
        return word

    def build_dataflow(provider: StreamProvider) -> None:
        for name, source in FORMATS.items():
            words = provider.new_stream().source(name, source(folder / f"*.{name}")).map(f"word in {name}", word_of)
            keyed = words.key_distribute(f"by word in {name}", lambda msg: msg.value)
            keyed.stateful_map(f"count in {name}", count, int).sink(f"out of {name}", VecSink())

    return build_dataflow


def test_growing_files_are_counted_once_in_spite_of_failures(
    runtime: Any, store: FsspecBackend, tmp_path: Path
) -> None:
    written: list[str] = []
    steps = [(WORDS[:2_000], False, 1), ([*WORDS[2_000:4_000], POISON], True, 3), (WORDS[4_000:], False, 2)]
    for words, fails, parallelism in steps:
        write(tmp_path, words, header=not written)
        written += words
        run = runtime(counting(tmp_path, fails=fails), store, snapshots=MOMENT, parallelism=parallelism)
        if fails:
            with pytest.raises(OperatorError, match="it is poisoned"):
                run.execute()
        else:
            run.execute()
            for name in FORMATS:
                assert kept_states(store, f"count in {name}") == Counter(written)


def test_unions_of_the_same_streams_keep_their_epochs_apart(runtime: Any, store: FsspecBackend) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        a, b, c = (
            provider.new_stream().source(name, SingleIteratorSource(range(3))).generate_epochs(f"e{name}", epoch_of)[0]
            for name in "abc"
        )
        a.union(b).union(c)
        a.union(b, c)
        a.union(b.union(c))
        a.key_local("k", lambda msg: 0).stateful_map("ea + eb", count, int).sink("out", out)

    def epoch_of(msg: Any, previous: Any) -> Any:
        return msg.value

    for expected in ([1, 2, 3], []):  # the second time every record is late
        out: VecSink[Any, Any, Any] = VecSink()
        runtime(build_dataflow, store).execute()
        assert out.values == expected
        assert kept_states(store, "ea + eb") == {0: 3}
