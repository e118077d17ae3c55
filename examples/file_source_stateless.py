"""Write your own source: it reads the lines of files; without arguments, its own.

Each file is a part, and the key of a record is its part. A stateless source reads all parts from the
beginning after a restart.
"""

import sys
from collections.abc import Generator
from pathlib import Path

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import StatelessSourceImpl, StatelessSourcePartition


class FileSource(StatelessSourceImpl[str, str, int]):
    """Read files line by line."""

    def __init__(self, *paths: str) -> None:
        self._paths = paths

    def list_parts(self) -> tuple[str, ...]:
        """Return the files."""
        return self._paths

    def build_part(self, part: str) -> "FilePartition":
        """Begin to read a file."""
        return FilePartition(part)


class FilePartition(StatelessSourcePartition[str, int]):
    """The reader of one file."""

    def __init__(self, path: str) -> None:
        self._records = read_lines(path)
        self._finished = False

    def poll(self) -> tuple[str, int] | None:
        """Return the next line, with its index as timestamp."""
        record = next(self._records, None)
        self._finished = record is None
        return record

    def is_finished(self) -> bool:
        """Whether the file has been read to its end."""
        return self._finished

    def suspend(self) -> None:
        """Close the file: this reader is not polled again."""
        self._records.close()


def read_lines(path: str) -> Generator[tuple[str, int], None, None]:
    with Path(path).open(encoding="utf-8") as file:
        for index, line in enumerate(file):
            yield line.rstrip("\n"), index


def main(*paths: str) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        lines = provider.new_stream().source("files", FileSource(*(paths or [__file__])))
        lines.sink("stdout", StdOutSink())

    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main(*sys.argv[1:])
