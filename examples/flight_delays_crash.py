"""The month of flights once more, killed in the middle and resumed.

A first process is killed, as by a power cut, at its 15,000th flight. A second run continues from the last snapshot. It
processes the flights since then again, and writes their totals again; the state, and so each last total, is exact.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import timedelta
from itertools import count
from pathlib import Path

from malflow import DataMessage, SingleThreadRuntime
from malflow.sinks import JsonLinesSink, VecSink
from malflow.snapshot import FsspecBackend, snapshots

from flight_delays import build

CRASH_AT = 15_000


def stream(folder: Path, crash_at: int | None = None) -> int:
    """Continue the last run, append each new total of a carrier to a file, and return their number."""
    flights = count(1)

    def to_line(msg: DataMessage) -> object:
        if next(flights) == crash_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return msg.key, [msg.value.flights, msg.value.total]

    carriers = JsonLinesSink(folder / "carriers.jsonl", append=True, formatter=to_line)
    dataflow = build(VecSink(), carriers, VecSink(), VecSink())
    SingleThreadRuntime(
        dataflow,
        FsspecBackend(str(folder)),
        snapshots=timedelta(milliseconds=100),
        at_end="finish",  # the month is over: no later run adds to its last hours
    ).execute()
    return next(flights) - 1


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="malflow-flights-") as folder:
        killed = subprocess.run([sys.executable, __file__, folder], check=False).returncode == -signal.SIGKILL
        taken = len(list(snapshots(FsspecBackend(folder))))
        rest = stream(Path(folder))
        resumed = dict(map(json.loads, Path(folder, "carriers.jsonl").read_text(encoding="utf-8").splitlines()))
    carriers = VecSink()
    SingleThreadRuntime(build(VecSink(), carriers, VecSink(), VecSink())).execute()
    uninterrupted = {msg.key: [msg.value.flights, msg.value.total] for msg in carriers}

    print(f"killed at flight {CRASH_AT:,} of {len(carriers):,}; snapshots until then: {taken};")
    print(f"resumed after flight {len(carriers) - rest:,}; flights done twice: {CRASH_AT - 1 + rest - len(carriers):,}")
    print("\n         killed and resumed    uninterrupted\ncarrier  flights  minutes      flights  minutes")
    for carrier, totals in sorted(uninterrupted.items()):
        print("{:7}  {:7,}  {:7,}      {:7,}  {:7,}".format(carrier, *resumed.get(carrier, (0, 0)), *totals))
    if not killed or resumed != uninterrupted:
        sys.exit("the process was not killed, or the totals differ")
    print("the totals are equal")


if __name__ == "__main__":
    stream(Path(sys.argv[1]), CRASH_AT) if len(sys.argv) > 1 else main()
