"""``python -m tests.multiprocess.programs.kafka_counts FOLDER SERVERS IN OUT``: numbers from Kafka to Kafka, once.

Two worker processes count the numbers of each parity, and write ``number count``, until each partition of the input
ends. It prints ``ended N`` with the number of restarts.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import MultiProcessRuntime, RestartPolicy, StreamProvider
from malflow.connectors.kafka import KafkaSink
from malflow.sources import StatefulSource
from tests.connectors.kafka.program import SlowSource
from tests.kit.backends import at_once
from tests.multiprocess.programs.totals import FAILPOINT, Announcer
from tests.processes.programs.counting import say


def main(folder: Path, servers: str, topics: tuple[str, str]) -> None:
    """Run the job to its end."""
    os.environ.pop(FAILPOINT, None)  # it was read when malflow was imported

    def build(provider: StreamProvider) -> None:
        source = SlowSource(topics[0], servers=servers, decode="json", stop="latest")
        sink = KafkaSink[Any, Any, Any](
            topics[1], servers=servers, delivery="exactly-once", encode="text", timeout=timedelta(minutes=1)
        )
        numbers = provider.new_stream().source("numbers", StatefulSource(source))
        keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
        counted = keyed.stateful_map("count", lambda _, value, count: (f"{value} {count + 1}", count + 1), int)
        counted.sink("out", sink)

    runtime = MultiProcessRuntime(
        build,
        at_once(folder / "state", job=topics[1]),
        timedelta(microseconds=1),
        processes=2,
        start_method="forkserver",
        restart=RestartPolicy(attempts=10, backoff=timedelta(milliseconds=10)),
        listeners=[Announcer()],
    )
    runtime.execute()
    say(f"ended {runtime.progress.restarts}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], (sys.argv[3], sys.argv[4]))
