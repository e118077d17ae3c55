"""Siddhi as a peer: a process of Java that stays for all rounds, so that its compiler has done its work."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["Siddhi", "missing"]

_PROJECT = Path(__file__).parent.parent / "siddhi"
_BUILD = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "malflow-siddhi"


def missing() -> list[str]:
    """Return which programs that Siddhi needs are not installed."""
    return [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]


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
        command = ["java", "-Xmx1g", "-cp", _class_path(), "malflow.Patterns", query, str(file)]
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


def _class_path() -> str:
    """Return where Siddhi and the program are, fetched and compiled if they are not there yet."""
    libraries, classes = _BUILD / "lib", _BUILD / "classes"
    if not libraries.exists():
        maven = ["mvn", "-q", "-B", "-f", str(_PROJECT / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*maven, f"-DoutputDirectory={libraries}"], check=True)  # noqa: S603 - the project's own pom
    source = _PROJECT / "src/main/java/malflow/Patterns.java"
    compiler = ["javac", "-nowarn", "-proc:none", "-cp", f"{libraries}/*", "-d", str(classes), str(source)]
    subprocess.run(compiler, check=True)  # noqa: S603 - the project's own program
    return f"{classes}{os.pathsep}{libraries}/*"
