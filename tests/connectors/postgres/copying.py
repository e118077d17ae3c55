"""A program that copies a table exactly once: by its changes into a table by key, and into a log that only grows.

``python -m tests.connectors.postgres.copying FOLDER DSN SLOT [ends]``: with ``ends``, to the end of what is there. It
has points of its own, within the commits into the table and, ``amid-commit``, into either.
"""

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime
from malflow.connectors.postgres import Change, PostgresChanges, PostgresSink
from malflow.connectors.postgres import sink as sink_module
from malflow.connectors.postgres.writing import Stages, TableWriter
from malflow.snapshot import FsspecBackend
from malflow.store.failpoint import failpoint


class Sink(PostgresSink):
    def commit(self, handles: Sequence[Any]) -> None:
        failpoint("sink-commit")
        super().commit(handles)
        failpoint("sink-after-commit")


class Writer(TableWriter):
    def apply(self, stages: Stages, *, strict: bool) -> None:
        super().apply(stages, strict=strict)
        failpoint("amid-commit")


def log_line(change: Change) -> dict[str, Any]:
    return {"kind": change.kind, "old": change.old and dict(change.old), "new": change.new and dict(change.new)}


def main(folder: Path, dsn: str, slot: str, *options: str) -> None:
    """Run the job."""
    setattr(sink_module, "TableWriter", Writer)  # noqa: B010 - a crash point, where the rows are applied

    def build(provider: Any) -> None:
        until: Any = "now" if "ends" in options else None
        source = PostgresChanges(dsn, ["orders"], slot=slot, until=until, page_rows=200)
        changes = provider.new_stream().source("orders", source)
        changes.sink("copy", Sink(dsn, "copy"))
        log = PostgresSink(dsn, "log", key=(), columns=["kind", "old", "new"])
        changes.map("line", log_line).sink("log", log)

    backend = FsspecBackend((folder / "snapshots").as_uri())
    SingleThreadRuntime(build, persistence=backend, snapshots=timedelta(milliseconds=30)).execute()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
