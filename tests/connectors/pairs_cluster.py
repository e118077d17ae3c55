"""A driver of a cluster of Spark that runs jobs from one system into another; see `tests.spark.clusters`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from malflow import RestartPolicy, SparkRuntime
from tests.connectors.pairs_program import backend_of, pair
from tests.spark.programs.cluster import Program, main


class PairProgram(Program):
    """The driver, and the job that it runs."""

    def start(self, **options: Any) -> dict[str, Any]:
        """Start a job from the `arguments` of its program, in which each number takes some `seconds`."""
        folder = options["arguments"][2]
        self.warnings.texts.clear()
        self.handle = SparkRuntime(
            pair(*options["arguments"], seconds=options["seconds"]),
            backend_of(folder),
            timedelta(microseconds=1),
            2,
            spark=self.session,
            max_records_per_tick=10,
            scratch=f"{folder}/scratch",
            restart=RestartPolicy(3, timedelta(milliseconds=1)),
        ).start()
        return self.progress()


if __name__ == "__main__":
    main(PairProgram)
