"""Runs of several dataflows at once on either runtime, compared with the interpreter."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime
from malflow.runtime.spark.runtime import SparkHandle, SparkRuntime
from malflow.snapshot import FsspecBackend, dead_letters, fsck
from tests.campaign.cases import Difference
from tests.campaign.endpoints import counting_sink, paced_source
from tests.campaign.flows import Flow
from tests.kit.backends import kept
from tests.kit.log import Log
from tests.properties.agreement import assert_agree, assert_one_ticket, typed
from tests.properties.building import Run, build
from tests.properties.interpreter import Interpretation, interpret
from tests.properties.lifting import counts_epochs, lifted
from tests.properties.specs import REFUSES, Step

__all__ = ["Job", "shown", "snapshots_every"]

SECONDS = 400
"""How long a run may take."""


@dataclass
class Job:
    """Dataflows in one query, where they keep their state, and what they are to come to.

    Args:
        flows: the dataflows.
        seed: decides where the sources pause.
        folder: an empty folder.
        longest: for how many polls a source pauses at most.
        options: of the backend.
    """

    flows: Sequence[Flow]
    seed: int
    folder: Path
    longest: int = 12
    url: str = ""
    options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.expected = [interpret(flow.dataflow) for flow in self.flows]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._numbers = count()
        self.opened = self.new_log()

    @property
    def debug(self) -> bool:
        return all(flow.dataflow.debug for flow in self.flows)

    def new_log(self) -> Log:
        return Log(Path(self.folder, f"log-{next(self._numbers)}"))

    def backend(self, name: str = "state", **more: Any) -> FsspecBackend:
        """Return the backend of a name; each name has a state of its own."""
        options = {"retain": 4, "signing_key": "a key to sign with, long enough", **(self.options or {}), **more}
        return FsspecBackend(f"{self.url or self.folder}/{name}", job="campaign", **options)

    def build(self, result: Run, provider: Any) -> None:
        """Build all dataflows into one program."""
        for flow in self.flows:
            result.new_sink = partial(self._sink, flow, result)
            build(flow.dataflow, provider, None, result, source=self._source)

    def _source(self, step: Step) -> Any:
        return paced_source(step, random.Random(f"{self.seed} {step.name}"), self.opened, longest=self.longest)

    def _sink(self, flow: Flow, result: Run, step: Step) -> Any:
        if step.name not in flow.counted:
            return None
        return counting_sink(result.records.setdefault(step.name, self.new_log()), refuses=step.arg == REFUSES)

    # Runs

    def new_run(self) -> Run:
        return Run(new_log=self.new_log)

    def run_here(self, backend: FsspecBackend, parallelism: int, **how: Any) -> Run:
        """Run to the end on one thread."""
        result = self.new_run()
        SingleThreadRuntime(
            partial(self.build, result), backend, parallelism=parallelism, debug=self.debug, at_end="finish", **how
        ).execute()
        return self.settled(result)

    def start_there(self, result: Run, backend: FsspecBackend, parallelism: int, spark: Any, **how: Any) -> SparkHandle:
        """Start a run on Spark."""
        return SparkRuntime(
            partial(self.build, result),
            backend,
            parallelism=parallelism,
            spark=spark,
            debug=self.debug,
            at_end="finish",
            **how,
        ).start()

    def run_there(self, backend: FsspecBackend, parallelism: int, spark: Any, **how: Any) -> Run:
        """Run to the end on Spark."""
        result = self.new_run()
        handle = self.start_there(result, backend, parallelism, spark, **how)
        if not handle.await_termination(SECONDS):
            handle.stop()
            raise Difference(f"the run has not ended within {SECONDS} seconds: {handle.progress}")
        result.restarts = handle.progress.restarts
        return self.settled(result)

    def settled(self, result: Run) -> Run:
        """Read what was written."""
        result.settle()
        result.records = {name: list(records) for name, records in result.records.items()}
        result.marks = {name: list(marks) for name, marks in result.marks.items()}
        return result

    # What must hold

    def check_outputs(self, result: Run) -> None:
        """Compare what came out with what must, as far as its order is specified."""
        for flow, expected in zip(self.flows, self.expected, strict=True):
            try:
                assert_agree(flow.dataflow, expected, result)
            except AssertionError as error:
                raise Difference(f"{error}: {_told(flow, expected, result)}") from error

    def check_outputs_at_least(self, result: Run) -> None:
        """Compare what came out of a job that was broken off: the specified records are there, maybe several times."""
        for flow, expected in zip(self.flows, self.expected, strict=True):
            vague = lifted(flow.dataflow.steps, counts_epochs)
            for step in flow.dataflow.steps:
                if step.kind == "sink" and step.name not in vague:
                    lost = _rows(expected, step) - Counter(_typed(result.records[step.name]))
                    if lost:
                        raise Difference(f"{step.name}: lost {shown(lost)}")

    def check_tickets(self, result: Run, backend: FsspecBackend) -> None:
        """Check that the outputs have the tickets that the states hold, unless a run began again and drew new ones."""
        if result.restarts:
            return
        restored = kept(backend).states
        values = [record.value for sink in result.sinks.values() for record in sink]
        states = [merged(name, restored) for flow in self.flows for name in flow.kept]
        try:
            assert_one_ticket([*values, *states])
        except AssertionError as error:
            raise Difference(str(error)) from error

    def check_states(self, backend: FsspecBackend, what: str) -> None:
        """Compare the newest snapshot with what must be kept at the end."""
        restored = kept(backend).states
        for flow, expected in zip(self.flows, self.expected, strict=True):
            for step in flow.dataflow.steps:
                if step.name in flow.kept:
                    _compare(step, what, merged(step.name, restored), expected.states[step.name])
        self.check_letters(backend, what)
        report = fsck(backend)
        if report.problems:
            raise Difference(f"{what}: {report.problems}")

    def check_letters(self, backend: FsspecBackend, what: str) -> None:
        """Compare the dead letters of sinks with the records that these refuse."""
        for flow, expected in zip(self.flows, self.expected, strict=True):
            vague = lifted(flow.dataflow.steps, counts_epochs)
            for sink, refused in ((it, expected.refused[it]) for it in expected.refused if it not in vague):
                found, most = Counter(_typed(dead_letters(backend, sink))), Counter(_typed(refused))
                if sink in flow.lettered:
                    most = Counter(_typed(expected.letters[sink]))
                    if lost := most - found:
                        raise Difference(f"{what}: letters of {sink} lack {shown(lost)}")
                if more := found - most:
                    raise Difference(f"{what}: letters of {sink} have {shown(more)} too many")

    @property
    def takeovers(self) -> int:
        """How often a reader was built: once for each part, and each time that its worker came to another process."""
        return len(self.opened)


def merged(name: str, states: Any) -> dict[Any, Any]:
    """Return the states of an operator over all workers."""
    found: dict[Any, Any] = {}
    for worker, by_key in states.get(name, {}).items():
        for key, state in by_key.items():
            if key in found:
                raise Difference(f"{name}: two workers have key {key!r}, the second is {worker}")
            found[key] = state
    return found


def _compare(step: Step, what: str, found: dict[Any, Any], wanted: dict[Any, Any]) -> None:
    keys = [*wanted, *(key for key in found if key not in wanted)]
    differing = [key for key in keys if _plain(step, found, key) != _plain(step, wanted, key)]
    if differing:
        shown = [f"{key!r}: {found.get(key, 'nothing')!r} for {wanted.get(key, 'nothing')!r}" for key in differing[:5]]
        raise Difference(f"{what}: {step.name}, {len(differing)} of {len(keys)} keys: {'; '.join(shown)}")


def _plain(step: Step, states: dict[Any, Any], key: Any) -> Any:
    """Return a state as it can be compared: without the order of what an operator sorts only when it sends it."""
    if key not in states:
        return None
    state = states[key]
    if step.kind == "ttl_map":
        return typed({entry: state.get(entry) for entry in state})
    if step.arg == "flush":
        return sorted(state)
    if step.arg == "tumble":
        return {window: sorted(values) for window, values in state.items()}
    return typed(state)


def _typed(records: Any) -> list[Any]:
    return [(record.key, typed(record.value), typed(record.timestamp)) for record in records]


def _rows(expected: Interpretation, step: Step) -> Counter[Any]:
    return Counter(_typed(expected.records[step.name]))


def _told(flow: Flow, expected: Interpretation, result: Run) -> str:
    """Return the missing and the unexpected records of each sink."""
    told = []
    for step in flow.dataflow.steps:
        if step.kind == "sink":
            wanted, found = _rows(expected, step), Counter(_typed(result.records[step.name]))
            if wanted != found:
                told.append(f"{step.name} lacks {shown(wanted - found)}, and has {shown(found - wanted)}")
    return "; ".join(told) or "only the order differs"


def shown(rows: Counter[Any]) -> str:
    """Return how many records these are, and some of them."""
    return f"{sum(rows.values())} records, such as {list(rows)[:3]}"


def snapshots_every(rng: random.Random) -> timedelta:
    """Choose how often snapshots are taken."""
    return timedelta(seconds=rng.choice([0.05, 0.3, 1.0, 3.0]))
