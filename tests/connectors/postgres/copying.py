"""A program that copies a table exactly once: by its changes into a table by key, and into a log that only grows.

python -m tests.connectors.postgres.copying '{"dsn": ..., "slot": ..., "folder": ..., "at": ..., "do": ...}'
"""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime
from malflow.connectors.postgres import Change, PostgresChanges, PostgresSink
from malflow.connectors.postgres import sink as sink_module
from malflow.connectors.postgres.sink import Handle
from malflow.connectors.postgres.writing import Stages, TableWriter
from malflow.snapshot import FsspecBackend

OPTIONS: dict[str, Any] = {}
PASSES = {"amid-commit": 4, "after-commit": 4, "before-commit": 4}
passed = dict.fromkeys(PASSES, 0)


def reach(point: str) -> None:
    """Do what the test wants done at a point, the first few passes of which are left alone."""
    passed[point] += 1
    if OPTIONS.get("at") != point or passed[point] != PASSES[point]:
        return
    todo = OPTIONS["do"]
    if "server" in todo:
        flag = Path(OPTIONS["folder"]) / "kill-the-server"
        flag.touch()
        while flag.exists():
            time.sleep(0.01)
    if "program" in todo:
        os.kill(os.getpid(), signal.SIGKILL)
    if "stop" in todo:
        os.kill(os.getpid(), signal.SIGSTOP)


class Sink(PostgresSink):
    def commit(self, handles: Sequence[Handle]) -> None:
        reach("before-commit")
        super().commit(handles)
        reach("after-commit")


class Writer(TableWriter):
    def apply(self, stages: Stages, *, strict: bool) -> None:
        super().apply(stages, strict=strict)
        reach("amid-commit")


def log_line(change: Change) -> dict[str, Any]:
    return {"kind": change.kind, "old": change.old and dict(change.old), "new": change.new and dict(change.new)}


def build(provider: Any) -> None:
    until = "now" if OPTIONS.get("ends") else None
    source = PostgresChanges(OPTIONS["dsn"], ["orders"], slot=OPTIONS["slot"], until=until, page_rows=200)
    changes = provider.new_stream().source("orders", source)
    changes.sink("copy", Sink(OPTIONS["dsn"], "copy"))
    log = PostgresSink(OPTIONS["dsn"], "log", key=(), columns=["kind", "old", "new"])
    changes.map("line", log_line).sink("log", log)


if __name__ == "__main__":
    OPTIONS |= json.loads(sys.argv[1])
    setattr(sink_module, "TableWriter", Writer)  # noqa: B010 - a crash point, where the rows are applied
    folder = Path(OPTIONS["folder"]) / "snapshots"
    SingleThreadRuntime(
        build, persistence=FsspecBackend(folder.as_uri()), snapshots=timedelta(milliseconds=30)
    ).execute()
