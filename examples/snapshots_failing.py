"""A program that dies again and again, and still counts every number once.

A source that resumes emits numbers, which are summed by parity. The process is killed at random moments, as by a power
cut, and restarted; the sums equal those of a run that never failed. The corresponding example of Malstrom is
`slatedb_backend_failing`.
"""

import random
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, snapshots
from malflow.testing import ScriptedSource

LAST = 10_000


def run(folder: str) -> dict[int, int]:
    """Sum the numbers, resuming from the last snapshot."""
    sums = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource(range(LAST + 1)))
        slowed = numbers.inspect("take some time", lambda _msg, _ctx: time.sleep(0.0001))
        by_parity = slowed.key_distribute("parity", lambda msg: msg.value % 2)
        by_parity.stateful_map("sum", lambda _key, value, total: (total + value, total + value), int).sink("sums", sums)

    SingleThreadRuntime(build_dataflow, FsspecBackend(folder), snapshots=timedelta(milliseconds=20)).execute()
    print(f"the last run had {len(sums):,} of {LAST:,} numbers left")
    return {msg.key: msg.value for msg in sums}


def newest_snapshot(folder: str) -> int:
    return max((snapshot.id for snapshot in snapshots(FsspecBackend(folder))), default=0)


def main(crashes: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, crashes + 1):
            before = newest_snapshot(folder)
            with subprocess.Popen([sys.executable, __file__, folder]) as process:
                while newest_snapshot(folder) == before and process.poll() is None:
                    time.sleep(0.005)
                time.sleep(random.uniform(0, 0.1))
                process.kill()
            print(f"crash {number}, after snapshot {newest_snapshot(folder)}")
        print("sums:    ", dict(sorted(run(folder).items())))
        print("expected:", {parity: sum(range(parity, LAST + 1, 2)) for parity in (0, 1)})


if __name__ == "__main__":
    run(sys.argv[1]) if len(sys.argv) > 1 else main()
