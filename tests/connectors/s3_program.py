"""``python -m tests.connectors.s3_program parquet|json|csv|delta ENDPOINT BUCKET STATE [impatient]``: pairs to S3.

STATE is the folder or URL of the snapshots. Each tick has a pair. With ``impatient`` the sink waits for no server.
Points within calls of the sink are added to those of the engine.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from malflow import StreamProvider
from malflow.connectors.delta import DeltaSink
from malflow.connectors.delta.table import Table
from malflow.connectors.parquet import ParquetSink
from malflow.connectors.staging.ledger import Ledger
from malflow.connectors.staging.s3_place import S3Place, Upload
from malflow.sinks import CsvSink, JsonLinesSink
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once
from tests.kit.running import add_failpoints, run_job
from tests.servers.versitygw import storage_options

STEPS = (
    (Upload, "seal", "upload"),
    (Ledger, "begin", "begin"),
    (S3Place, "publish", "publish"),
    (Ledger, "finish", "finish"),
    (Table, "append", "append"),
)
"""The steps of a commit."""

SIZE = 16


def delta_options(endpoint: str) -> dict[str, str]:
    """Return the storage options of deltalake."""
    options = storage_options(endpoint)
    return {
        "AWS_ACCESS_KEY_ID": options["key"],
        "AWS_SECRET_ACCESS_KEY": options["secret"],
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def main(kind: str, endpoint: str, bucket: str, state: str, *options: str) -> None:
    """Run the job to its end."""
    add_failpoints(*STEPS)
    output, access = f"s3://{bucket}/out", storage_options(endpoint)
    how: Any = {"formatter": row_of, **({"retry_for": timedelta(0)} if "impatient" in options else {})}
    sinks: dict[str, Any] = {
        "parquet": lambda: ParquetSink(output, storage_options=access, **how),
        "json": lambda: JsonLinesSink(f"{output}/", storage_options=access, **how),
        "csv": lambda: CsvSink(f"{output}/", storage_options=access, **how),
        "delta": lambda: DeltaSink(output, storage_options=delta_options(endpoint), **how),
    }

    def build(provider: StreamProvider) -> None:
        script = [item for number in range(0, SIZE, 2) for item in (number, PAUSE)]
        even = provider.new_stream().source("even", ScriptedSource({"part": script}))
        keyed = even.flat_map("pair", lambda number: [number, number + 1]).key_distribute(
            "parity", lambda msg: msg.value % 2
        )
        counted = keyed.stateful_map("count", lambda _, value, n: ((value, n), n + 1), int)
        counted.sink("out", sinks[kind]())

    more = {"storage_options": access} if state.startswith("s3:") else {}
    run_job(build, at_once(state, job="pairs", codec="msgpack", **more))


def row_of(msg: Any) -> dict[str, int]:
    """Return a row of the output."""
    return {"n": msg.value[0], "nth": msg.value[1]}


if __name__ == "__main__":
    main(*sys.argv[1:])
