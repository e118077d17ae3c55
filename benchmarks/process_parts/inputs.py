"""The input of the jobs, in 16 parts that are spread evenly over two workers and over four."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

from malflow import rendezvous_select

__all__ = ["KEYS", "MINUTE", "PARTS", "even_names", "note_of", "topics_of", "write_files"]

PARTS = 16
KEYS = 1_000
MINUTE = 60_000
"""The length of the windows, in milliseconds; there is one record each millisecond of event time."""

_SECONDS = 120
_FLUSHED = 50_000
"""Messages that a producer may hold, of the 100,000 that it takes."""

_NOTE = "x" * 30

P = TypeVar("P")


def even_names(names: Iterable[P]) -> list[P]:
    """Return the first 16 of the names such that of these two workers hold 8 each, and four workers 4 each.

    A part belongs to the worker that `rendezvous_select` selects by its name, so most sets of 16 names are uneven: with
    random ones, one of two workers has more than half of the work.
    """
    # the places among two workers and among four: the first two of four hold what they held as two
    left = {(0, 0): 4, (1, 1): 4, (0, 2): 2, (1, 2): 2, (0, 3): 2, (1, 3): 2}
    chosen: list[P] = []
    for name in names:
        places = rendezvous_select(name, range(2)), rendezvous_select(name, range(4))
        if left.get(places):
            left[places] -= 1
            chosen.append(name)
        if len(chosen) == PARTS:
            break
    return chosen


def note_of(number: int) -> dict[str, Any]:
    """Return a record: a town and its people at a time."""
    return {"at": number, "town": f"town-{number * 7919 % KEYS}", "people": number % 100, "note": _NOTE}


def write_files(folder: str, records: int) -> list[str]:
    """Write JSON lines to 16 files in turn; return their paths."""
    paths = even_names(f"{folder}/{number:04}.jsonl" for number in count())
    for at, path in enumerate(paths):
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - the name of a part is text
            file.writelines(f"{json.dumps(note_of(number))}\n" for number in range(at, records, PARTS))
    return paths


def topics_of(servers: str, records: int) -> tuple[str, str]:
    """Write JSON to the 16 partitions of a new topic in turn; return it, and a new topic for results."""
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    source = next(filter(_is_even, _names()))
    sink = f"{source}-results"
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, PARTS, 1) for name in (source, sink)]).values():
        made.result(_SECONDS)
    # idempotent, since batches that are sent again change places otherwise
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "enable.idempotence": True})
    for number in range(records):
        record = note_of(number)
        producer.produce(source, json.dumps(record), record["town"], partition=number % PARTS)
        if number % _FLUSHED == 0:
            producer.flush(_SECONDS)
    producer.flush(_SECONDS)
    return source, sink


def _names() -> Iterator[str]:
    unique = uuid4().hex[:8]
    return (f"processes-{unique}-{number}" for number in count())


def _is_even(topic: str) -> bool:
    """Whether two workers hold 8 partitions of a topic each, and four workers 4 each: of some 70 names, one does."""
    for workers in (2, 4):
        held = [rendezvous_select((topic, partition), range(workers)) for partition in range(PARTS)]
        if any(held.count(worker) != PARTS // workers for worker in range(workers)):
            return False
    return True
