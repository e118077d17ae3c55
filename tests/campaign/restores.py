"""Jobs that move between the runtimes, stopped, attacked and rescaled on the way: the states stay exact."""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from malflow import RestartPolicy, SingleThreadRuntime, SnapshotError
from malflow.snapshot import FsspecBackend, snapshots
from tests.campaign.attack import Attack, python_workers
from tests.campaign.cases import Campaign, Difference
from tests.campaign.comparing import SECONDS, Job, snapshots_every
from tests.campaign.flows import Flow, flows, resting
from tests.campaign.kills import TRIES
from tests.kit.spark_session import quiet_session
from tests.properties.building import Run, keyed_states

__all__ = ["restores"]


def restores(campaign: Campaign) -> None:
    """Run cases until the time is up."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        spark = stack.enter_context(quiet_session(folder, f"local[3, {TRIES}]"))
        for seed in campaign.seeds():
            campaign.attempt(seed, partial(_case, seed, spark))


def _movable(flow: Flow) -> bool:
    """Whether the number of workers may change on the way."""
    return flow.dataflow.movable and all(spec.placement is not None for spec in keyed_states(flow.dataflow))


def _case(seed: int, spark: Any) -> str:
    rng = random.Random(seed)
    several = [resting(rng).named("resting: "), *filter(_movable, flows(seed, 2))]
    with TemporaryDirectory() as folder:
        job = Job(several, seed, Path(folder), longest=rng.choice([2, 6]))
        leg = _Leg(job, job.backend("state"), rng, spark)
        said = [leg.broken_off() for _ in range(rng.randint(1, 4))]
        said.append(leg.to_the_end())
        job.check_outputs_at_least(job.settled(leg.result))
        job.check_states(leg.backend, "after all")
        return f"{len(several)} dataflows: {', '.join(said)}"


class _Leg:
    """One run after the other of a job; what they write is put together."""

    def __init__(self, job: Job, backend: FsspecBackend, rng: random.Random, spark: Any) -> None:
        self.job, self.backend, self.rng, self.spark = job, backend, rng, spark
        self.result = Run(new_log=job.new_log)
        self._together = self.result

    def broken_off(self) -> str:
        """Run for a while, maybe from an older snapshot."""
        how: dict[str, Any] = {}
        kept = [it.id for it in snapshots(self.backend)] if self.rng.random() < 0.3 and self._has_begun() else []
        if kept:
            how["restore"] = self.rng.choice(kept)
        if self.rng.random() < 0.3:
            return self._here(**how)
        return self._there(self.rng.uniform(1, 12), **how)

    def to_the_end(self) -> str:
        return self._here(is_last=True) if self.rng.random() < 0.4 else self._there(None)

    def _has_begun(self) -> bool:
        return self.backend.manifest_log().find() is not None

    def _here(self, *, is_last: bool = False, **how: Any) -> str:
        runtime = SingleThreadRuntime(
            partial(self._build, self.job.new_run()),
            self.backend,
            snapshots_every(self.rng),
            self.rng.randint(1, 4),
            at_end="finish",
            **how,
        )
        if not is_last:
            threading.Timer(self.rng.uniform(0, 0.2), runtime.stop).start()
        runtime.execute()
        return "one thread"

    def _build(self, run: Run, provider: Any) -> None:
        """Build the dataflows; what this run writes goes to the files that the others wrote to."""
        run.sinks, run.records, run.marks = self.result.sinks, self.result.records, {}
        run.new_log = self.job.new_log
        self.job.build(run, provider)

    def _there(self, seconds: float | None, **how: Any) -> str:
        rng, parallelism = self.rng, self.rng.randint(1, 4)
        most, every = rng.choice([3, 6]), snapshots_every(rng)
        how |= {"snapshots": every, "max_records_per_tick": most, "restart": RestartPolicy(5)}
        handle = self.job.start_there(self.result, self.backend, parallelism, self.spark, **how)
        with Attack(rng, python_workers, every=3, kills=TRIES - 2) as attack:
            said = f"Spark with {parallelism}"
            if rng.random() < 0.5:
                time.sleep(rng.uniform(0, 6))
                parallelism = rng.randint(1, 5)
                with suppress(SnapshotError, Exception):  # it may be over, or starting again
                    handle.rescale(parallelism).result(SECONDS)
                    said += f" to {parallelism}"
            if seconds is not None:
                handle.await_termination(seconds)
                handle.stop()
            if not handle.await_termination(SECONDS):
                raise Difference(f"the run has not ended within {SECONDS} seconds: {handle.progress}")
        return f"{said} workers, {attack.done['killed']} killed, {handle.progress.restarts} restarts"
