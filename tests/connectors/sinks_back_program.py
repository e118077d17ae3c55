"""``python -m tests.connectors.sinks_back_program KIND FOLDER OUTPUT COUNT``: the first numbers into a sink."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from malflow import StreamProvider
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once
from tests.kit.running import run_job

SINKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "delta": ("malflow.connectors.delta", "DeltaSink", {}),
    "kafka": ("malflow.connectors.kafka", "KafkaSink", {"topic": "t", "delivery": "exactly-once", "encode": "json"}),
    "lines": ("malflow.sinks", "JsonLinesSink", {}),
    "mariadb": ("malflow.connectors.sql", "SqlSink", {"table": "t"}),
    "parquet": ("malflow.connectors.parquet", "ParquetSink", {}),
    "postgres": ("malflow.connectors.postgres", "PostgresSink", {"table": "t"}),
    "redis": ("malflow.connectors.redis", "RedisSink", {"table": "t", "encode": "json"}),
    "sqlite": ("malflow.connectors.sql", "SqlSink", {"table": "t"}),
}
"""For each kind the module and class of its sink, which are imported when they are used, and its options."""


def sink_of(kind: str, output: str) -> Any:
    """Return a sink."""
    module, name, options = SINKS[kind]
    make = getattr(import_module(module), name)
    return make(servers=output, **options) if kind == "kafka" else make(output, **options)


def main(kind: str, folder: str, output: str, count: str) -> None:
    """Run the job to the end of the numbers, one a tick."""

    def build(provider: StreamProvider) -> None:
        script = [item for number in range(int(count)) for item in (number, PAUSE)]
        numbers = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
        keyed = numbers.key_distribute("number", lambda msg: msg.value)
        keyed.map("row", lambda number: {"n": number}).sink("out", sink_of(kind, output))

    run_job(build, at_once(folder, job="back"))


if __name__ == "__main__":
    main(*sys.argv[1:])
