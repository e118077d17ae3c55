"""A program that keeps the rows of a table by its changes, and writes them to another one exactly once.

``python -m tests.connectors.postgres.tabling FOLDER DSN SLOT [ends]``: with ``ends``, to the end of the changes so far.
"""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime
from malflow.connectors.postgres import PostgresChanges, PostgresSink
from malflow.connectors.tables import rows_by_key
from malflow.snapshot import FsspecBackend


def main(folder: Path, dsn: str, slot: str, *options: str) -> None:
    """Run the job."""

    def build(provider: Any) -> None:
        until: Any = "now" if "ends" in options else None
        source = PostgresChanges(dsn, ["documents"], slot=slot, until=until, page_rows=100)
        rows = provider.new_stream().source("documents", source).flat_map("rows", rows_by_key("id"))
        table = rows.key_distribute("id", "key").to_table("table", row="row")
        table.rows().sink("copy", PostgresSink(dsn, "copy", key=["id"]))

    backend = FsspecBackend((folder / "snapshots").as_uri())
    SingleThreadRuntime(build, backend, timedelta(milliseconds=30), parallelism=2).execute()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
