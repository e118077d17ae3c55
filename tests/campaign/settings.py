"""Sessions set up by users: whatever their settings, a run has the same results, or is refused."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from malflow import GraphError
from tests.campaign.cases import Campaign, Difference
from tests.campaign.comparing import Job, snapshots_every
from tests.campaign.flows import flows, resting
from tests.kit.spark_session import quiet_session

__all__ = ["settings"]

CHOICES: dict[str, dict[str, str]] = {
    "adaptive": {"spark.sql.adaptive.enabled": "true", "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1"},
    "small batches": {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"},
    "small bytes": {"spark.sql.execution.arrow.maxBytesPerBatch": "512"},
    "time zone": {"spark.sql.session.timeZone": "Pacific/Kiritimati"},
    "ansi": {"spark.sql.ansi.enabled": "true", "spark.sql.storeAssignmentPolicy": "STRICT"},
    "not ansi": {"spark.sql.ansi.enabled": "false", "spark.sql.storeAssignmentPolicy": "LEGACY"},
    "partitions": {"spark.sql.shuffle.partitions": "7", "spark.default.parallelism": "5"},
    "no compression": {"spark.shuffle.compress": "false", "spark.shuffle.spill.compress": "false"},
    "zstd": {"spark.io.compression.codec": "zstd", "spark.sql.execution.arrow.compression.codec": "zstd"},
    "kryo": {"spark.serializer": "org.apache.spark.serializer.KryoSerializer"},
    "little memory": {"spark.python.worker.memory": "1m", "spark.memory.fraction": "0.1"},
    "tracebacks": {
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.python.worker.faulthandler.enabled": "true",
    },
    "arrow": {
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    },
    "interpreted": {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
    "fair": {"spark.scheduler.mode": "FAIR"},
    "streaming": {
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.metricsEnabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.pollingDelay": "1ms",
    },
    "hash seeds": {"spark.executorEnv.PYTHONHASHSEED": "7"},
    "idle workers": {"spark.python.worker.idleTimeoutSeconds": "1"},
    "no daemon": {"spark.python.use.daemon": "false"},
}
"""What a session may have set; a case takes some of them."""

_SLOW = "no daemon"
"""Each task starts an interpreter and compiles pyspark, which takes seconds: a case with it has few tasks."""

REFUSED = {"spark.speculation": "true", "spark.python.worker.reuse": "false"}

_DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
}


def settings(campaign: Campaign) -> None:
    """Run cases until the time is up, each in a session of its own."""
    for seed in campaign.seeds():
        campaign.attempt(seed, partial(_case, seed))


def _case(seed: int) -> str:
    rng = random.Random(seed)
    chosen = rng.choice([_refused, *[_foreign] * 6, _dynamic])
    with TemporaryDirectory() as folder:
        said: str = chosen(rng, seed, Path(folder))
        return said


def _refused(_rng: random.Random, seed: int, folder: Path) -> str:
    for name, value in REFUSED.items():
        with quiet_session(folder, "local[2]", **{name: value}) as spark:
            job = Job([resting(random.Random(seed))], seed, folder / name)
            try:
                job.run_there(job.backend("state"), 1, spark)
            except GraphError:
                continue
            raise Difference(f"{name}={value} is not refused")
    return "refused"


def _foreign(rng: random.Random, seed: int, folder: Path) -> str:
    names = rng.sample(list(CHOICES), rng.randint(1, 4))
    conf = {name: value for chosen in names for name, value in CHOICES[chosen].items()}
    tries = rng.choice([1, 4])
    with quiet_session(folder, f"local[2, {tries}]", **conf) as spark:
        return f"{names}, {tries} tries: {_runs(rng, seed, folder, spark, is_slow=_SLOW in names)}"


def _dynamic(rng: random.Random, seed: int, folder: Path) -> str:
    with quiet_session(folder, "local-cluster[2,1,1024]", **_DYNAMIC) as spark:
        return f"dynamic allocation: {_runs(rng, seed, folder, spark)}"


def _runs(rng: random.Random, seed: int, folder: Path, spark: Any, *, is_slow: bool = False) -> str:
    """Run one job, or two at once, under one name or two; a slow one is small."""
    several = [
        Job(
            [resting(rng).named(f"{at}: "), *flows(seed + at, 0 if is_slow else rng.randint(0, 1))],
            seed + at,
            folder / f"job-{at}",
            longest=1 if is_slow else 12,
        )
        for at in range(1 if is_slow else rng.choice([1, 1, 2]))
    ]
    names = [rng.choice([None, f"job {at}"]) for at in range(len(several))]
    with ThreadPoolExecutor(len(several)) as pool:
        runs = [
            pool.submit(_one, job, random.Random(seed), spark, name, most_workers=1 if is_slow else 4)
            for job, name in zip(several, names, strict=True)
        ]
        for run in runs:
            run.result()
    return f"jobs {names}"


def _one(job: Job, rng: random.Random, spark: Any, name: str | None, *, most_workers: int) -> None:
    backend = job.backend("state")
    most, parallelism = rng.choice([3, 12, None]), rng.randint(1, most_workers)
    how: dict[str, Any] = {"snapshots": snapshots_every(rng), "max_records_per_tick": most, "name": name}
    job.check_outputs(job.run_there(backend, parallelism, spark, scratch=str(job.folder / "scratch"), **how))
    job.check_states(backend, "Spark")
