"""Workers, executors and drivers that are killed or stopped at random moments: all totals stay exact."""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from malflow import RestartPolicy, SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.snapshot import fsck
from tests.campaign.attack import Attack, pause, python_workers
from tests.campaign.cases import Campaign, Difference
from tests.campaign.comparing import Job, snapshots_every
from tests.campaign.flows import flows, resting
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.spark_session import quiet_session
from tests.spark.clusters import CLUSTER, Driver
from tests.spark.flows import WRITTEN, assert_written_once, expected_sums, kept_sums
from tests.spark.programs.faults import Options, backend_of, faulty

__all__ = ["cluster", "workers"]

TRIES = 9
"""How often Spark tries a task where workers are killed; fewer kills than that can't end a run."""


def workers(campaign: Campaign) -> None:
    """Kill and stop the processes of Python of a session on this machine, while random dataflows run."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(FaultyS3())
        spark = stack.enter_context(quiet_session(folder, f"local[3, {TRIES}]"))
        for seed in campaign.seeds():
            campaign.attempt(seed, partial(_workers_case, seed, spark, server))


def _workers_case(seed: int, spark: Any, server: FaultyS3) -> str:
    rng = random.Random(seed)
    parallelism = rng.randint(1, 4)
    several = [resting(rng).named("resting: "), *flows(seed, rng.randint(0, 1))]
    with TemporaryDirectory() as folder:
        remote = rng.random() < 0.25
        url = f"s3://{server.bucket}/{seed}" if remote else ""
        options = {"storage_options": server.options} if remote else {}
        job = Job(several, seed, Path(folder), longest=rng.choice([2, 6]), url=url, options=options)
        backend = job.backend("state")
        how: dict[str, Any] = {"snapshots": snapshots_every(rng), "max_records_per_tick": rng.choice([3, 6])}
        how |= {"scratch": f"{url or folder}/scratch", "scratch_options": options.get("storage_options")}
        with Attack(rng, python_workers, every=rng.choice([0.3, 1, 3]), kills=TRIES - 2) as attack:
            result = job.run_there(backend, parallelism, spark, restart=RestartPolicy(5), **how)
        job.check_outputs_at_least(result)
        job.check_states(backend, "after the attack")
        job.check_tickets(result, backend)
        return f"parallelism {parallelism}, {how['snapshots']}, S3 {remote}, {dict(attack.done)}"


def cluster(campaign: Campaign) -> None:
    """Kill and stop workers, executors and the driver of a cluster of processes, and continue on either runtime."""
    with TemporaryDirectory() as folder, FaultyS3() as server, _Drivers(Path(folder)) as drivers:
        for seed in campaign.seeds():
            campaign.attempt(seed, partial(_cluster_case, seed, drivers, server))


class _Drivers:
    """The driver that is there; a new one where the last one was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._driver: Driver | None = None
        self._dead: list[Driver] = []

    def __enter__(self) -> _Drivers:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in [*self._dead, *([] if self._driver is None else [self._driver])]:
            driver.close()

    def get(self) -> Driver:
        """Return the driver, which waits for something to do."""
        if self._driver is None:
            self._number += 1
            self._driver = Driver(self._folder / f"driver-{self._number}", CLUSTER, PYTHONWARNINGS="ignore")
            self._driver.answer()
        return self._driver

    def kill(self) -> None:
        """Kill the driver alone: what it has started learns of it by and by."""
        if self._driver is not None:
            self._driver.process.kill()
            self._driver.process.wait()
            self._dead.append(self._driver)
            self._driver = None

    def bury(self) -> None:
        """End what dead drivers have left."""
        while self._dead:
            self._dead.pop().close()


def _cluster_case(seed: int, drivers: _Drivers, server: FaultyS3) -> str:
    rng = random.Random(seed)
    with TemporaryDirectory() as folder:
        options: dict[str, Any] = {"folder": folder, "size": rng.choice([120, 240]), "sleep": rng.choice([0.0, 0.003])}
        if rng.random() < 0.25:
            url = f"s3://{server.bucket}/{seed}"
            options |= {"state": f"{url}/state", "scratch": f"{url}/scratch", "storage_options": server.options}
        said = [f"size {options['size']}", "S3" if "state" in options else "disk"]
        try:
            said += [_broken_off(rng, drivers, options) for _ in range(rng.randint(1, 3))]
            said.append(_to_the_end(rng, drivers, options))
        except BaseException:
            drivers.kill()
            raise
        finally:
            drivers.bury()
        _check(Options(**options))
        return ", ".join(said)


def _on_cluster(rng: random.Random, options: dict[str, Any]) -> dict[str, Any]:
    how = {"parallelism": rng.randint(1, 5), "most": rng.choice([15, 60]), "every": rng.choice([0.05, 0.3, 2])}
    return {**options, **how, "attempts": 6}


def _broken_off(rng: random.Random, drivers: _Drivers, options: dict[str, Any]) -> str:
    """Begin a run, attack it, and end it before it is through, if it is not by then."""
    if rng.random() < 0.3:
        runtime = _here(rng, options)
        threading.Timer(rng.uniform(0, 1), runtime.stop).start()
        runtime.execute()
        return "stopped on one thread"
    driver = drivers.get()
    driver.ask("start", **_on_cluster(rng, options))
    with _attack(rng, driver) as attack:
        time.sleep(rng.uniform(1, 10))
        if rng.random() < 0.4:
            pause(rng.choice([driver.process.pid, *driver.processes("SparkSubmit")]), rng.uniform(0.5, 5))
        if rng.random() < 0.5:
            drivers.kill()
            return f"driver killed after {dict(attack.done)}"
    driver.ask("stop")
    return _told(driver.wait(), attack)


def _to_the_end(rng: random.Random, drivers: _Drivers, options: dict[str, Any]) -> str:
    if rng.random() < 0.3:
        _here(rng, options).execute()
        return "ended on one thread"
    driver = drivers.get()
    driver.ask("start", **_on_cluster(rng, options))
    with _attack(rng, driver) as attack:
        return _told(driver.wait(), attack)


def _here(rng: random.Random, options: dict[str, Any]) -> SingleThreadRuntime:
    chosen = Options(**options)
    return SingleThreadRuntime(faulty(chosen, VecSink()), backend_of(chosen), parallelism=rng.randint(1, 4))


def _attack(rng: random.Random, driver: Driver) -> Attack:
    def victims() -> list[int]:
        kinds = [lambda: driver.processes("pyspark.worker"), lambda: driver.processes("pyspark.worker")]
        kinds += [driver.executors] if rng.random() < 0.4 else []
        return rng.choice(kinds)()

    return Attack(rng, victims, every=rng.choice([1, 3]), kills=3)


def _told(end: dict[str, Any], attack: Attack) -> str:
    if end["error"] is not None:
        raise Difference(f"the run failed after {dict(attack.done)}: {end['error']}, {end['warnings'][-3:]}")
    return f"{end['tick']} ticks, {end['restarts']} restarts, {dict(attack.done)}"


def _check(options: Options) -> None:
    backend = backend_of(options)
    found, wanted = kept_sums(backend), expected_sums(options.size)
    if found != wanted:
        raise Difference(f"sums: {found}, not {wanted}")
    assert_written_once(Path(options.folder, WRITTEN), options.size)
    if problems := fsck(backend).problems:
        raise Difference(f"fsck: {problems}")
