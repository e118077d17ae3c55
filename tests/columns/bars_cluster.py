"""A driver of a cluster of Spark that runs the job of `tests.columns.bars_program`; see `tests.spark.clusters`."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from malflow import RestartPolicy, SparkRuntime
from tests.columns import bars_program
from tests.spark.programs.cluster import Program, main


class BarsProgram(Program):
    """The driver, and the job that it runs."""

    def start(self, **options: Any) -> dict[str, Any]:
        """Start the job in a `folder` with a `sink`."""
        folder = Path(options["folder"])
        self.warnings.texts.clear()
        self.handle = SparkRuntime(
            partial(bars_program.build, folder, options["sink"], function=partial(bars_program.dying, folder)),
            bars_program.backend_of(folder),
            timedelta(microseconds=1),
            2,
            spark=self.session,
            max_records_per_tick=20,
            scratch=f"{folder}/scratch",
            restart=RestartPolicy(3, timedelta(milliseconds=1)),
            at_end="finish",
        ).start()
        return self.progress()


if __name__ == "__main__":
    main(BarsProgram)
