"""Numbers into a target that refuses negative ones, a transaction for each tick.

``python -m tests.bad_records.programs.refusing FOLDER ADDRESS [replay]`` with the URL of a service, or of a
database with a table ``t``. With ``replay``, dead letters are replayed in the first tick.
"""

from __future__ import annotations

import sys
from typing import Any

from malflow import StreamProvider
from malflow.cli.output.output import Output
from malflow.cli.running.tapping import ReplayingListener
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once
from tests.kit.running import run_job

__all__ = ["REFUSED", "VALUES", "backend_of"]

SCRIPT = [1, 2, PAUSE, 3, -4, 5, -6, PAUSE, -7, PAUSE, 8, 9]
VALUES = [it for it in SCRIPT if isinstance(it, int)]
REFUSED = [it for it in VALUES if it < 0]


def sink_of(address: str) -> Any:
    """Return the sink into a target."""
    if address.startswith("http:"):
        from malflow.connectors.http import HttpSink  # noqa: PLC0415 - each start imports one client

        return HttpSink(address, retries=0, delivery="exactly-once")
    if "://" in address:
        from malflow.connectors.sql import SqlSink  # noqa: PLC0415

        return SqlSink(address, "t", key=(), formatter=_row)
    from malflow.connectors.postgres import PostgresSink  # noqa: PLC0415

    return PostgresSink(address, "t", key=(), formatter=_row)


def backend_of(folder: object) -> FsspecBackend:
    """Return where the snapshots are."""
    return at_once(folder, job="refusing")


def main(folder: str, address: str, *options: str) -> None:
    """Run the job to its end."""

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource(SCRIPT))
        numbers.sink("out", sink_of(address), on_error="dead_letter")

    listeners = [ReplayingListener("out", Output(quiet=True))] if "replay" in options else []
    run_job(build, backend_of(folder), listeners=listeners)


def _row(msg: Any) -> dict[str, int]:
    return {"n": msg.value}


if __name__ == "__main__":
    main(*sys.argv[1:])
