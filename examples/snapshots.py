"""Keep state between runs: a counter continues from the last run. Run it twice.

Snapshots go to a folder, or to a URL passed as argument, such as s3://bucket/prefix. The corresponding example of
Malstrom is `slatedb_backend`.
"""

import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.snapshot import FsspecBackend, snapshots
from malflow.sources import SingleIteratorSource


def build_dataflow(provider: StreamProvider) -> None:
    (
        provider.new_stream()
        .source("words", SingleIteratorSource(["once", "upon", "a", "time", "once", "more"]))
        .key_distribute("word", lambda msg: msg.value)
        .stateful_map("count", lambda _word, _value, count: (count + 1, count + 1), default=int)
        .sink("stdout", StdOutSink())
    )


def main(url: str = "") -> None:
    backend = FsspecBackend(url or str(Path(tempfile.gettempdir(), "malflow-snapshots")), job="word-count")
    SingleThreadRuntime(build_dataflow, persistence=backend, snapshots=timedelta(seconds=1)).execute()
    for snapshot in snapshots(backend):
        print(f"snapshot {snapshot.id}: tick {snapshot.tick}, {dict(snapshot.operators)}, {snapshot.bytes} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
