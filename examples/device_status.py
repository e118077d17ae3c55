"""The last status of each device: a table that a job writes, reads back, and answers questions about.

Needs `pip install 'malflow[sql]'`. ``python examples/device_status.py devices`` keeps the database and the snapshots in
the folder ``devices``; without one, they are temporary.

In Flink SQL it is a table with a primary key, outside of the job, which statements write and read:

    CREATE TABLE device_status (device STRING, heat INT, ok BOOLEAN, PRIMARY KEY (device) NOT ENFORCED)
        WITH ('connector' = 'jdbc', ...)  -- or upsert-kafka, which other jobs read
    INSERT INTO device_status SELECT device, heat, ok FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY device ORDER BY at DESC) AS n FROM readings) WHERE n = 1
    SELECT c.verb, c.device, s.heat, s.ok FROM commands AS c
        LEFT JOIN device_status FOR SYSTEM_TIME AS OF c.at AS s ON c.device = s.device
    SELECT * FROM device_status WHERE device = 'pump'

Here it is state of the job: `to_table` keeps the last row of each device, and ``join_table(..., at="arrival")`` reads
it back without asking anyone. `SqlSink` is the table outside: a copy, in step with the snapshots. Who wants a row asks
the job, by `state`, or its last snapshot, by `read_state`.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, TypedDict

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.sql import SqlSink
from malflow.sinks import StdOutSink
from malflow.snapshot import FsspecBackend, read_state
from malflow.testing import PAUSE, ScriptedSource


class Reading(TypedDict):
    """A row of the table; without heat, the device was taken away."""

    device: str
    heat: int | None
    ok: bool


class Command(NamedTuple):
    """An order to a device."""

    device: str
    verb: str


READINGS: list[Reading] = [
    {"device": "pump", "heat": 61, "ok": True},
    {"device": "fan", "heat": 35, "ok": True},
    {"device": "pump", "heat": 97, "ok": False},
    {"device": "fan", "heat": None, "ok": False},
    {"device": "fan", "heat": 21, "ok": True},
]
COMMANDS = [Command("pump", "start"), Command("fan", "stop")]

TABLE = "create table if not exists device_status (device text primary key, heat int not null, ok boolean not null)"


def present(reading: Reading) -> Reading | None:
    """Return the row that a reading makes; None deletes it."""
    return None if reading["heat"] is None else reading


def decide(command: Command, row: Reading | None) -> str:
    """Return an answer to a command, by the row of its device."""
    if row is None:
        return f"{command.verb}: there is no {command.device}"
    return f"{command.verb}: done" if row["ok"] else f"{command.verb}: refused at {row['heat']} degrees"


def main(folder: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        run(Path(folder or temporary))


def run(folder: Path) -> None:
    """Run the job, ask it while it runs, and read its states and rows afterwards."""
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / "devices.db")) as database:
        database.execute(TABLE)

    # Scripts instead of live sources: commands come after two readings, and after two more. Then the job waits.
    readings = ScriptedSource(
        [*READINGS[:2], *[PAUSE] * 2, *READINGS[2:4], *[PAUSE] * 2, READINGS[4], *[PAUSE] * 100_000]
    )
    commands = ScriptedSource([PAUSE, *COMMANDS, *[PAUSE] * 2, *COMMANDS])

    def build_dataflow(provider: StreamProvider) -> None:
        read = provider.new_stream().source("readings", readings).key_distribute("device", "device")
        status = read.to_table("status", row=present)
        status.rows().sink("copy", SqlSink(f"sqlite:///{folder}/devices.db", "device_status", key=["device"]))

        told = provider.new_stream().source("commands", commands).key_distribute("told device", "device")
        told.join_table("decide", status, decide, at="arrival").sink("answers", StdOutSink())

    backend = FsspecBackend(folder / "state", job="devices")
    job = SingleThreadRuntime(build_dataflow, backend, timedelta(seconds=1)).start()
    try:
        status = job.state("status")
        while status.get("fan", default=None).result(timeout=10) != READINGS[4]:
            time.sleep(0.01)
        print("running:", status.get_many(["pump", "fan"]).result(timeout=10))
    finally:
        job.stop()
        job.await_termination()
    print("stopped:", dict(read_state(backend, "status")))
    with closing(sqlite3.connect(folder / "devices.db")) as database:
        print("outside:", database.execute("select * from device_status").fetchall())


if __name__ == "__main__":
    main(*sys.argv[1:])
