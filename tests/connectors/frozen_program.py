"""A job on a server that a test freezes: `frozen_program KIND ADDRESS FOLDER`; it ends by a signal or an error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from malflow import SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource

RETRY = timedelta(seconds=120)


def numbers() -> Iterator[dict[str, int]]:
    number = 0
    while True:
        time.sleep(0.01)
        yield {"n": number}
        number += 1


def source_and_sink(kind: str, address: str) -> tuple[Any, Any]:
    if kind == "postgres sink":
        from malflow.connectors.postgres import PostgresSink  # noqa: PLC0415

        return SingleIteratorSource(numbers()), PostgresSink(address, "t", key=(), retry_for=RETRY)
    if kind == "postgres changes":
        from malflow.connectors.postgres import PostgresChanges  # noqa: PLC0415

        return PostgresChanges(address, ["t"], slot="frozen", copy=False, retry_for=RETRY, require_old=False), VecSink()
    from malflow.connectors.sql import SqlSink  # noqa: PLC0415

    return SingleIteratorSource(numbers()), SqlSink(address, "t", key=(), retry_for=RETRY)


def main(kind: str, address: str, folder: str) -> None:
    source, sink = source_and_sink(kind, address)
    SingleThreadRuntime(
        lambda provider: provider.new_stream().source("in", source).inspect("seen", seen).sink("out", sink),
        FsspecBackend(folder, job="frozen"),
        timedelta(milliseconds=200),
    ).execute()


def seen(message: Any, context: Any) -> None:
    del context
    print(message.value, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
