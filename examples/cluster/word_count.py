"""Count words on a cluster: ``spark-submit --py-files malflow.zip word_count.py INPUT STATE SCRATCH [WORKERS]``.

INPUT names text files, STATE and SCRATCH folders; all machines must reach all three, such as ``s3://bucket/state``.
Run it again with more files: it goes on from the counts that it has kept.
"""

import sys
from datetime import timedelta

from malflow import SparkRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.snapshot import FsspecBackend
from malflow.sources import TextFileSource

files, state, scratch, *workers = sys.argv[1:]


def build_dataflow(provider: StreamProvider) -> None:
    lines = provider.new_stream().source("lines", TextFileSource(files))
    words = lines.map("split", str.split).flatten("words").key_distribute("word", lambda msg: msg.value)
    words.stateful_map("count", lambda word, _, n: (n + 1, n + 1), default=int).sink("out", StdOutSink())


SparkRuntime(
    build_dataflow,
    persistence=FsspecBackend(state, job="word-count"),
    snapshots=timedelta(seconds=10),
    parallelism=int(workers[0]) if workers else 4,
    scratch=scratch,
).execute()
