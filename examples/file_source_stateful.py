"""Write a source that resumes from its position: it reads the lines of files; without arguments, its own.

`snapshot` returns the position, which is saved with the state of all operators; after a restart, or when the
part moves to another worker, `build_part` receives it and continues from there.
"""

import sys
from collections.abc import Generator
from itertools import islice
from pathlib import Path

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import StatefulSourceImpl, StatefulSourcePartition


class FileSource(StatefulSourceImpl[str, str, int, int]):
    """Read files line by line."""

    def __init__(self, *paths: str) -> None:
        self._paths = paths

    def list_parts(self) -> tuple[str, ...]:
        """Return the files."""
        return self._paths

    def build_part(self, part: str, state: int | None) -> "FilePartition":
        """Resume at the saved line, or start with the first."""
        return FilePartition(part, state or 0)


class FilePartition(StatefulSourcePartition[str, int, int]):
    """The reader of one file."""

    def __init__(self, path: str, next_line: int) -> None:
        self._records = read_lines(path, next_line)
        self._next_line = next_line
        self._finished = False

    def poll(self) -> tuple[str, int] | None:
        """Return the next line, with its index as timestamp."""
        record = next(self._records, None)
        self._finished = record is None
        self._next_line += record is not None
        return record

    def is_finished(self) -> bool:
        """Whether the file has been read to its end."""
        return self._finished

    def snapshot(self) -> int:
        """Return the index of the next line."""
        return self._next_line

    def suspend(self) -> None:
        """Close the file: this reader is not polled again."""
        self._records.close()


def read_lines(path: str, start: int) -> Generator[tuple[str, int], None, None]:
    with Path(path).open(encoding="utf-8") as file:
        for index, line in enumerate(islice(file, start, None), start):
            yield line.rstrip("\n"), index


def main(*paths: str) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        lines = provider.new_stream().source("files", FileSource(*(paths or [__file__])))
        lines.sink("stdout", StdOutSink())

    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main(*sys.argv[1:])
