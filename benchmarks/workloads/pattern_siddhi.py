"""Siddhi as a peer: a process of Java that stays for all rounds, so that its compiler has done its work."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from java_programs import class_path

__all__ = ["Siddhi"]


class Siddhi:
    """A query of Siddhi 5.1.30 over records, which are sent again in each round.

    Args:
        query: the name of the query: see `Patterns.java`.
        records: the records.
        folder: where a file with them is written.
    """

    def __init__(self, query: str, records: Sequence[dict[str, Any]], folder: Path) -> None:
        file = folder / f"{query}.csv"
        file.write_text("".join(f"{it['user']},{it['at']},{it['kind']},{it['size']}\n" for it in records))
        command = ["java", "-Xmx1g", "-cp", class_path("siddhi", "Patterns.java"), "malflow.Patterns", query, str(file)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 - no shell, no input of others

    def round(self) -> tuple[float, int]:
        """Send the records; return the CPU seconds of the process for it, and the number of matches."""
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 - both are pipes
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        seconds, matches = self._process.stdout.readline().split()
        return float(seconds), int(matches)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
