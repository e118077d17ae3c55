"""The input of the jobs: in 16 parts, in a few files with names drawn at random, or in many of drawn sizes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import ExitStack
from random import choices, paretovariate
from typing import Any
from uuid import uuid4

__all__ = [
    "FILES",
    "KEYS",
    "MINUTE",
    "PARTITIONS",
    "PARTS",
    "drawn_names",
    "note_of",
    "topics_of",
    "write_files",
    "write_uneven_files",
]

PARTS = 16
FILES = 4
"""The files whose names are drawn: as many as a user starts with."""

PARTITIONS = 12
"""The partitions of a usual topic: a multiple of 2, 3, 4 and 6 workers."""

UNEVEN = 200
"""The files of drawn sizes."""

_ALPHA = 1.16
"""The shape of their Pareto distribution: a fifth of the files has four fifths of the lines."""

_MOST = 0.2
"""The largest share of one file: with more, no hand-out could use two processes well. Draws with more are repeated."""

KEYS = 1_000
MINUTE = 60_000
"""The length of the windows, in milliseconds; there is one record each millisecond of event time."""

_SECONDS = 120
_FLUSHED = 50_000
"""Messages that a producer may hold, of the 100,000 that it takes."""

_NOTE = "x" * 30


def note_of(number: int) -> dict[str, Any]:
    """Return a record: a town and its people at a time."""
    return {"at": number, "town": f"town-{number * 7919 % KEYS}", "people": number % 100, "note": _NOTE}


def write_files(folder: str, records: int, files: int = PARTS) -> list[str]:
    """Write JSON lines to files in turn; return their paths."""
    paths = [f"{folder}/{number:04}.jsonl" for number in range(files)]
    for at, path in enumerate(paths):
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - the name of a part is text
            file.writelines(f"{json.dumps(note_of(number))}\n" for number in range(at, records, files))
    return paths


def write_uneven_files(folder: str, records: int) -> list[str]:
    """Write JSON lines to 200 files of sizes drawn at random, each over all of the time; return their paths."""
    shares = [1.0]
    while max(shares) > _MOST * sum(shares):
        shares = [paretovariate(_ALPHA) for _ in range(UNEVEN)]
    paths = [f"{folder}/{number:04}.jsonl" for number in range(UNEVEN)]
    with ExitStack() as stack:
        files = [stack.enter_context(open(path, "w", encoding="utf-8")) for path in paths]  # noqa: PTH123 - as above
        for number, file in enumerate(choices(files, shares, k=records)):
            file.write(f"{json.dumps(note_of(number))}\n")
    return paths


def drawn_names(paths: Iterable[str], folder: str) -> list[str]:
    """Link files into a folder, with names drawn at random; return the new paths, in the order of their names."""
    made = [f"{folder}/{uuid4().hex}.jsonl" for _ in paths]
    for path, name in zip(paths, made, strict=True):
        os.link(path, name)
    return sorted(made)


def topics_of(servers: str, records: int, partitions: int = PARTS) -> tuple[str, str]:
    """Write JSON to the partitions of a new topic in turn; return it, and a new topic for results."""
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    source = f"processes-{uuid4().hex[:8]}"
    sink = f"{source}-results"
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, partitions, 1) for name in (source, sink)]).values():
        made.result(_SECONDS)
    # idempotent, since batches that are sent again change places otherwise
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "enable.idempotence": True})
    for number in range(records):
        record = note_of(number)
        producer.produce(source, json.dumps(record), record["town"], partition=number % partitions)
        if number % _FLUSHED == 0:
            producer.flush(_SECONDS)
    producer.flush(_SECONDS)
    return source, sink
