"""A driver of a Spark cluster on this machine: it executes requests, a line of JSON for each.

``python -m tests.spark.programs.cluster FOLDER MASTER``; see `tests.spark.clusters` for the other side.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from malflow import QueryError, RestartPolicy, SparkRuntime, StateView
from malflow.runtime.spark.anchors import Anchors, executors
from malflow.sinks import VecSink
from tests.bad_records.programs import replaying
from tests.kit.spark_session import INTERPRETED, QUICK_JAVA, QUICK_PYTHON
from tests.spark.flows import KEYS
from tests.spark.programs.faults import Options, backend_of, faulty

_ROOT = Path(__file__).parents[3]
_CONF = {
    **INTERPRETED,
    **QUICK_PYTHON,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.executorEnv.PYTHONPATH": str(_ROOT),
    "spark.locality.wait": os.environ.get("LOCALITY_WAIT", "0"),
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "50ms",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    **json.loads(os.environ.get("SETTINGS_OF_SPARK", "{}")),
}

_ANCHOR = Anchors._anchor
_PREFERRED: list[str] = []
"""The executors that workers were last placed on, as Spark names them."""


class Warnings(logging.Handler):
    """Keeps what was warned of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class Program:
    """The driver, and the run that it drives."""

    def __init__(self, folder: Path, master: str) -> None:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - only the extra has it

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder: Any = SparkSession.builder.master(master).appName("malflow faults")
        for name, value in {"spark.local.dir": str(folder / "local"), **_CONF}.items():
            builder = builder.config(name, value)
        self.session = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
        self.session.sparkContext.setLogLevel("OFF")
        self.warnings = Warnings()
        logging.getLogger("malflow").addHandler(self.warnings)
        self.out: VecSink[Any, Any, Any] = VecSink()
        self.asking = threading.Thread(target=self._ask, daemon=True)
        self.answers: list[tuple[list[tuple[int, int]], int | None]] = []

    def start(self, **options: Any) -> dict[str, Any]:
        """Start a run."""
        chosen = Options(**options)
        Anchors._anchor = _no_door if chosen.anchorless else _noted  # type: ignore[assignment, method-assign]
        self.warnings.texts.clear()
        self.out = VecSink()
        runtime = SparkRuntime(
            faulty(chosen, self.out),
            backend_of(chosen),
            timedelta(seconds=chosen.every) if chosen.every else None,
            chosen.parallelism,
            spark=self.session,
            max_records_per_tick=chosen.most,
            scratch=chosen.scratch or f"{chosen.folder}/scratch",
            scratch_options=chosen.storage_options,
            restart=RestartPolicy(chosen.attempts, timedelta(milliseconds=1)),
            restore=chosen.restore,  # type: ignore[arg-type] # JSON has no literals
        )
        self.handle = runtime.start()
        self.answers = []
        self.asking = threading.Thread(target=self._ask, daemon=True)
        if chosen.asks:
            self.asking.start()
        return self.progress()

    def start_replaying(self, folder: str, **options: Any) -> dict[str, Any]:
        """Start a run whose functions fail for many numbers; see `tests.bad_records` for its options."""
        self.warnings.texts.clear()
        self.handle = SparkRuntime(
            partial(replaying.build, Path(folder), replaying.Options(**options)),
            replaying.backend_of(Path(folder)),
            timedelta(seconds=1),
            2,
            spark=self.session,
            max_records_per_tick=60,
            scratch=f"{folder}/scratch",
            restart=RestartPolicy(3, timedelta(milliseconds=1)),
        ).start()
        return self.counts()

    def replay(self, operator: str) -> dict[str, Any]:
        """Replay the dead letters of an operator; return the outcome."""
        return self.handle.replay(operator).result(60)._asdict()

    def counts(self) -> dict[str, Any]:
        """Return the counts of the run."""
        progress = self.handle.progress
        return {"records": dict(progress.records), "counts": {it: dict(of) for it, of in progress.counts.items()}}

    def _ask(self) -> None:
        """Ask for all sums, again and again until the run ends."""
        sums: StateView[int, int] = self.handle.state("sum")
        try:
            while True:
                some, all_of_them = sums.get_many(range(KEYS)), sums.items(limit=KEYS)
                self.answers.append((sorted(some.result().items()), some.tick))
                self.answers.append((sorted(all_of_them.result()), all_of_them.tick))
        except QueryError:
            pass

    def progress(self) -> dict[str, Any]:
        """Return the progress of the run."""
        progress = self.handle.progress
        places = {"copies": self.handle.copies, "moves": self.handle.moves, "read": self.handle.read_bytes}
        counts = {
            name: [it.taken, [*it.given], it.failed, it.skipped, it.letters, it.retries]
            for name, it in progress.operators.items()
        }
        return {
            "tick": progress.tick,
            "snapshot": progress.snapshot,
            "restarts": progress.restarts,
            "counts": counts,
            **places,
        }

    def registered(self) -> dict[str, Any]:
        """Return the number of executors that the driver knows."""
        return {"executors": executors(self.session.sparkContext)}

    def decommission(self) -> dict[str, Any]:
        """Decommission an executor, which stays and gets no more tasks; return its id."""
        scala, java = self.session.sparkContext._jsc.sc(), self.session.sparkContext._jvm
        executor = scala.getExecutorIds().head()
        info = java.org.apache.spark.scheduler.ExecutorDecommissionInfo("it is a spot node", java.scala.Option.empty())
        assert scala.schedulerBackend().decommissionExecutor(executor, info, False, False)
        return {"executor": executor}

    def anchored(self) -> dict[str, Any]:
        """Return the executors that workers were last placed on."""
        return {"executors": sorted({place.rpartition("_")[2] for place in _PREFERRED})}

    def prefer(self, wait: str) -> dict[str, Any]:
        """Set the time that Spark waits for an executor that it prefers, from the next job."""
        self.session.sparkContext._jsc.sc().conf().set("spark.locality.wait", wait)
        return {}

    def stop(self) -> dict[str, Any]:
        """Stop the run at the end of its tick."""
        self.handle.stop()
        return {}

    def wait(self, seconds: float) -> dict[str, Any]:
        """Wait for the end of the run, and tell of it."""
        error: Exception | None = None
        try:
            ended = self.handle.await_termination(seconds)
        except Exception as raised:  # noqa: BLE001 - it is told
            ended, error = True, raised
        if self.asking.is_alive():
            self.asking.join(seconds)
        return {
            **self.progress(),
            "answers": self.answers,
            "ended": ended,
            "error": None if error is None else [type(error).__name__, str(error), repr(error.__cause__)],
            "key": getattr(error, "key", None),
            "outputs": len(self.out),
            "warnings": self.warnings.texts,
        }


def _noted(anchors: Anchors, preferred: Sequence[str]) -> None:
    _PREFERRED[:] = preferred
    _ANCHOR(anchors, preferred)


def _no_door(*_: object) -> None:
    raise AttributeError("'Anchors' has no such door")


def main(kind: type[Program] = Program) -> None:
    program = kind(Path(sys.argv[1]), sys.argv[2])
    _say({})
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(program, command.pop("do"))(**command)
        except Exception as error:  # noqa: BLE001 - it is told
            answer = {"raised": [type(error).__name__, str(error)]}
        _say(answer)


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
