"""Flink SQL as a peer: a process of Java that runs the texts of Nexmark over events in memory."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from java_programs import class_path

__all__ = ["Answer", "Flink"]

_OPENED = ("java.util", "java.lang", "java.time", "java.math")
"""Packages of Java that Flink reads by reflection."""

_SWITCHES = ("-Xmx2g", "-XX:+UseSerialGC", "-XX:ActiveProcessorCount=1")
"""One core, so a collector without threads of its own."""


class Answer(NamedTuple):
    """What a run took.

    Attributes:
        laps: the CPU nanoseconds of the process in each lap after those before the stopwatch starts.
        rows: how many rows were written.
    """

    laps: list[int]
    rows: int


class Flink:
    """Flink SQL 2.3.0 in one process, with parallelism 1.

    Args:
        events: the file of the events, as JSON lines.
        span: the milliseconds of all events, by which they are later each time that they come again.
    """

    def __init__(self, events: Path, span: int) -> None:
        self._span = span
        opened = [f"--add-opens=java.base/{it}=ALL-UNNAMED" for it in _OPENED]
        command = [
            "java",
            *_SWITCHES,
            *opened,
            "-cp",
            class_path("flink", "Queries.java"),
            "malflow.Queries",
            str(events),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 - no shell, no input of others

    def run(
        self, text: str, rows: int, *, warm: int = 0, lap: int = 0, every: int = 200, out: Path | None = None
    ) -> Answer:
        """Run statements over the events, again and again until there were so many.

        Args:
            text: the statements, as malflow runs them.
            rows: how many events there are.
            warm: how many of them come before the stopwatch starts.
            lap: after how many of them it is read again; by default at the end only.
            every: the milliseconds between two watermarks: Flink's default. With 0 each row may move the watermark.
            out: the file that the rows are written to.
        """
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 - both are pipes
        request = {"text": _of_flink(text), "rows": rows, "warm": warm, "lap": lap or rows, "span": self._span}
        self._process.stdin.write(json.dumps({**request, "every": every, "out": out and str(out)}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return Answer(answer["laps"], answer["rows"])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _of_flink(text: str) -> str:
    """Return statements with the connectors of the program, its function, and without lines of comments."""
    text = re.sub(r"WITH \('url' = '[^']*'\)", "WITH ('connector' = 'memory')", text)
    text = re.sub(r"AS '[^']*' LANGUAGE PYTHON", "AS 'malflow.Queries$CountChar'", text)
    return re.sub(r"^--.*$", "", text, flags=re.MULTILINE)
