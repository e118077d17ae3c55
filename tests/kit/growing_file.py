"""A source that reads the input which a test writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from malflow.sources import StatefulSourceImpl, StatefulSourcePartition

__all__ = ["GrowingFile"]


class GrowingFile(StatefulSourceImpl[str, str, int, int]):
    """The lines of a file that is still being written; the last one is "end".

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def write(self, *lines: str) -> None:
        """Append lines."""
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def list_parts(self) -> Iterable[str]:
        """List the one part."""
        return ["lines"]

    def build_part(self, part: str, state: int | None) -> GrowingFilePart:
        """Build its reader."""
        return GrowingFilePart(self.path, state or 0)


class GrowingFilePart(StatefulSourcePartition[str, int, int]):
    """The reader of a `GrowingFile`; it is built again where it resumes, behind the last line as well."""

    def __init__(self, path: Path, at: int) -> None:
        self.path = path
        self.at = at
        self.over = False

    def poll(self) -> tuple[str, int] | None:
        """Return the next line, once all of it is there."""
        lines = self.path.read_text(encoding="utf-8").split("\n")[:-1]
        if len(lines) == self.at:
            self.over = lines[-1:] == ["end"]
            return None
        self.at += 1
        self.over = lines[self.at - 1] == "end"
        return lines[self.at - 1], self.at

    def is_finished(self) -> bool:
        """Whether the line "end" was read."""
        return self.over

    def snapshot(self) -> int:
        """Return the number of lines that were read."""
        return self.at
