"""Both runtimes against the interpreter: many dataflows, a few in each query, all in one session."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from malflow.snapshot import snapshots
from tests.campaign.cases import Campaign, Difference
from tests.campaign.comparing import Job, snapshots_every
from tests.campaign.flows import Flow, flows, resting, wide
from tests.kit.spark_session import quiet_session

__all__ = ["differential", "here"]


def differential(campaign: Campaign) -> None:
    """Run cases until the time is up."""
    with TemporaryDirectory() as folder, quiet_session(Path(folder), "local[3]") as spark:
        for seed in campaign.seeds():
            campaign.attempt(seed, partial(case, seed, spark))


def here(campaign: Campaign) -> None:
    """Run the same on one thread only: a quick check of what is expected."""
    for seed in campaign.seeds():
        campaign.attempt(seed, partial(case, seed, None))


def drawn(rng: random.Random, seed: int, parallelism: int) -> list[Flow]:
    """Draw the dataflows of a case: random ones, and often one that was made to be difficult."""
    made = rng.choices(["none", "resting", "wide"], [3, 5, 1])[0]
    if made == "wide":
        return [wide(rng, parallelism).named("wide: ")]
    difficult = [resting(rng).named("resting: ")] if made == "resting" else []
    return [*difficult, *flows(seed, rng.randint(1 - len(difficult), 3 - len(difficult)))]


def case(seed: int, spark: Any) -> str:
    """Run some dataflows on one thread and on Spark; compare outputs, states, and what older snapshots come to."""
    rng = random.Random(seed)
    parallelism = rng.randint(1, 5)
    several = drawn(rng, seed, parallelism)
    with TemporaryDirectory() as folder:
        job = Job(several, seed, Path(folder), longest=rng.choice([2, 6]))
        job.check_outputs(job.run_here(job.backend("here"), rng.randint(1, 4)))
        job.check_states(job.backend("here"), "one thread")
        said = f"{len(several)} dataflows, parallelism {parallelism}"
        if spark is None:
            return said
        most = None if several[0].dataflow.steps[0].name.startswith("wide") else rng.choice([3, 6, 12, None])
        begun, backend = job.takeovers, job.backend("there")
        how = {"snapshots": snapshots_every(rng), "max_records_per_tick": most, "scratch": f"{folder}/scratch"}
        result = job.run_there(backend, parallelism, spark, **how)
        said += f", most {most}, {how['snapshots']}, {job.takeovers - begun} readers"
        job.check_outputs(result)
        job.check_states(backend, "Spark")
        left = [str(it) for it in Path(folder, "scratch").rglob("*") if it.is_file()]
        if left:
            raise Difference(f"left in scratch: {left[:5]}")
        return f"{said}, {_go_on_from_each(job, parallelism)} snapshots"


def _go_on_from_each(job: Job, parallelism: int) -> int:
    """Continue from each snapshot, on one thread; return the number of snapshots."""
    ids = [it.id for it in snapshots(job.backend("there"))]
    for number in ids:
        shutil.copytree(job.folder / "there", job.folder / f"from-{number}")
        backend = job.backend(f"from-{number}")
        job.run_here(backend, parallelism, restore=number)
        job.check_states(backend, f"from snapshot {number}")
    return len(ids)
