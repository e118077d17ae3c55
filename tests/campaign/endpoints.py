"""Sources that pause, and sinks with parts; both resume from their positions."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

from malflow import DataMessage, NoKey
from malflow.sinks import StatefulSink
from malflow.sinks.contract import StatefulSinkImpl, StatefulSinkPartition
from malflow.sources import StatefulSource
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from tests.kit.log import Log
from tests.properties.functions import is_refused
from tests.properties.interpreter import owned
from tests.properties.specs import Part, Step, fresh

__all__ = ["PAUSE", "CountingSink", "PacedSource", "counting_sink", "paced_source"]

PAUSE = None
"""In a script: nothing comes with this poll."""

Script = Sequence[tuple[Any, Any] | None]


def paced_source(step: Step, rng: random.Random, opened: Log, *, longest: int = 12) -> StatefulSource:
    """Make the source of a step: its records come with pauses of up to so many polls."""
    scripts = {at if part.key is NoKey else part.key: _script(part, rng, longest) for at, part in enumerate(step.arg)}
    return StatefulSource(PacedSource(scripts, opened, keyed=step.arg[0].key is not NoKey))


def _script(part: Part, rng: random.Random, longest: int) -> Script:
    script: list[tuple[Any, Any] | None] = []
    chance = rng.choice([0, 0.1, 0.3]) if len(part.values) < 1000 else 2 / len(part.values)
    for row in zip(part.values, part.timestamps, strict=True):
        if rng.random() < chance:
            script += [PAUSE] * rng.randint(1, longest)
        script.append(row)
    return script


class PacedSource(StatefulSourceImpl[Any, Any, Any, int]):
    """A source of the records of a script.

    Args:
        scripts: the output of each part.
        opened: is told of each reader that is built, and in which process.
        keyed: whether parts are keys.
    """

    def __init__(self, scripts: dict[Any, Script], opened: Log, *, keyed: bool) -> None:
        self.keyed = keyed  # type: ignore[misc] # it differs from object to object here
        self.scripts = scripts
        self.opened = opened

    def list_parts(self) -> list[Any]:
        return list(self.scripts)

    def build_part(self, part: Any, state: int | None) -> PacedPart:
        self.opened.append((part, os.getpid()))
        return PacedPart(self.scripts[part], state or 0)


class PacedPart(StatefulSourcePartition[Any, Any, int]):
    """The reader of one part."""

    def __init__(self, script: Script, position: int) -> None:
        self.script = script
        self.position = position

    def poll_batch(self, limit: int) -> tuple[list[Any], list[Any]]:
        values: list[Any] = []
        timestamps: list[Any] = []
        while len(values) < limit and not self.is_finished():
            row = self.script[self.position]
            if row is PAUSE and values:
                break
            self.position += 1
            if row is PAUSE:
                break
            values.append(fresh(row[0]))
            timestamps.append(row[1])
        return values, timestamps

    def poll(self) -> tuple[Any, Any] | None:
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def is_finished(self) -> bool:
        return self.position >= len(self.script)

    def snapshot(self) -> int:
        return self.position


def counting_sink(log: Log, *, refuses: bool = False) -> StatefulSink:
    """Make a sink with a part for each key, which counts what it writes, and may refuse some records."""
    return StatefulSink(CountingSink(log, refuses=refuses))


class CountingSink(StatefulSinkImpl[Any, Any, Any, Any, int]):
    """Writes to a log, whatever process it is in."""

    def __init__(self, log: Log, *, refuses: bool) -> None:
        self.log = log
        self.refuses = refuses

    def assign_part(self, msg: DataMessage[Any, Any, Any]) -> Any:
        return msg.key

    def build_part(self, part: Any, state: int | None) -> CountingPart:
        del part
        return CountingPart(self.log, state or 0, refuses=self.refuses)


class CountingPart(StatefulSinkPartition[Any, Any, Any, int]):
    """The writer of one part."""

    def __init__(self, log: Log, count: int, *, refuses: bool) -> None:
        self.log = log
        self.count = count
        self.refuses = refuses

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        if self.refuses and is_refused(msg.value):
            raise ValueError("refused")
        self.log.append(DataMessage(msg.key, owned(msg.value), msg.timestamp))
        self.count += 1

    def snapshot(self) -> int:
        return self.count
