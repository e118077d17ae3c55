"""(d) The words of a real text: the help pages that come with Python (`pydoc_data.topics`), again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle
from pydoc_data.topics import topics
from typing import Any

import bytewax.operators as op

from malflow import DataMessage, NoKey
from workloads.peers import Workload, run_bytewax, run_malflow

__all__ = ["WORKLOAD"]


def words_of(line: str) -> list[str]:
    return line.lower().split()


def word_of(msg: DataMessage[Any, str, Any]) -> str:
    return msg.value


def count(key: str, value: str, state: int) -> tuple[int, int]:
    return state + 1, state + 1


def _make(size: int) -> list[str]:
    """Repeat the lines until there are `size` words."""
    lines: list[str] = []
    text = [line for _, page in sorted(topics.items()) for line in page.splitlines()]
    for line in cycle(text):
        if size <= 0:
            break
        lines.append(line)
        size -= len(line.split())
    return lines


def _count_words(records: Sequence[str]) -> int:
    return sum(len(line.split()) for line in records)


def _malflow(records: Sequence[str]) -> int:
    return run_malflow(
        records,
        lambda stream: (
            stream.map("words", words_of)
            .flatten("each")
            .key_distribute("word", word_of)
            .stateful_map("count", count, default=int)
        ),
    )


def _loop(records: Sequence[str]) -> int:
    total = 0
    states: dict[str, int] = defaultdict(int)
    for timestamp, line in enumerate(records):
        for word in words_of(line):
            key = word_of(DataMessage(NoKey, word, timestamp))
            emitted, states[key] = count(key, word, states[key])
            total += emitted
    return total


def _tight_loop(records: Sequence[str]) -> int:
    total = 0
    states: dict[str, int] = defaultdict(int)
    view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
    for line in records:
        for word in words_of(line):
            view.value = word
            key = word_of(view)
            emitted, states[key] = count(key, word, states[key])
            total += emitted
    return total


def _bytewax(records: Sequence[str], batch_size: int) -> int:
    def itself(word: str) -> str:
        return word

    def count_on(state: int | None, _word: str) -> tuple[int, int]:
        if state is None:
            state = 0
        return state + 1, state + 1

    def build(stream: Any) -> Any:
        words = op.flat_map("words", stream, words_of)
        return op.stateful_map("count", op.key_on("word", words, itself), count_on)

    return run_bytewax(records, batch_size, build)


WORKLOAD = Workload("d", "word count", 1_000_000, _make, _malflow, _loop, _tight_loop, _bytewax, count=_count_words)
