"""Write your own sink: one file per key, one line per record.

A stateless sink is any object with `sink(msg)`; the base class is for type checkers. After a restart, it
receives the records since the last snapshot again.
"""

import tempfile
from pathlib import Path

from malflow import DataMessage, SingleThreadRuntime, StreamProvider
from malflow.sinks import StatelessSinkImpl
from malflow.sources import SingleIteratorSource


class FileSink(StatelessSinkImpl):
    """Append each value to the file of its key."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def sink(self, msg: DataMessage) -> None:
        """Append one value."""
        with (self._directory / f"{msg.key}.txt").open("a", encoding="utf-8") as file:
            file.write(f"{msg.value}\n")


def main(directory: Path | None = None) -> None:
    target = directory or Path(tempfile.mkdtemp(prefix="file-sink-"))

    def build_dataflow(provider: StreamProvider) -> None:
        (
            provider.new_stream()
            .source("number", SingleIteratorSource(range(5)))
            .map("int-to-string", str)
            .key_distribute("key-by-value", lambda msg: msg.value)
            .sink("file-sink", FileSink(target))
        )

    SingleThreadRuntime(build_dataflow).execute()
    for path in sorted(target.glob("*.txt")):
        print(f"{path}: {path.read_text(encoding='utf-8').splitlines()}")


if __name__ == "__main__":
    main()
