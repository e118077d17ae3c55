"""Write a sink with state: one file per key, with numbered lines.

`assign_part` returns the part of a record, here a file; all records of a part go to one worker, which builds
the writer at the first of them. The writer's state, the number of its next line, is saved with each snapshot.
"""

import tempfile
from pathlib import Path

from malflow import DataMessage, SingleThreadRuntime, StreamProvider
from malflow.sinks import StatefulSinkImpl, StatefulSinkPartition
from malflow.sources import SingleIteratorSource


class FileSink(StatefulSinkImpl):
    """Append each value to the file of its key, as a numbered line."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def assign_part(self, msg: DataMessage) -> str:
        """Return the name of the file."""
        return str(self._directory / f"{msg.key}.txt")

    def build_part(self, part: str, state: int | None) -> "FilePartition":
        """Resume at the saved line number, or start with 0."""
        return FilePartition(Path(part), state or 0)


class FilePartition(StatefulSinkPartition):
    """The writer of one file."""

    def __init__(self, path: Path, next_line: int) -> None:
        self._path = path
        self._next_line = next_line

    def sink(self, msg: DataMessage) -> None:
        """Append one line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{self._next_line} {msg.value}\n")
        self._next_line += 1

    def snapshot(self) -> int:
        """Save the number of the next line."""
        return self._next_line


def main(directory: Path | None = None) -> None:
    target = directory or Path(tempfile.mkdtemp(prefix="file-sink-"))

    def build_dataflow(provider: StreamProvider) -> None:
        (
            provider.new_stream()
            .source("number", SingleIteratorSource(range(50)))
            .key_distribute("key-by-mod", lambda msg: msg.value % 5)
            .sink("file-sink", FileSink(target))
        )

    SingleThreadRuntime(build_dataflow).execute()
    for path in sorted(target.glob("*.txt")):
        print(f"{path}: {path.read_text(encoding='utf-8').splitlines()}")


if __name__ == "__main__":
    main()
