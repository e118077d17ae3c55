"""A stream that is filled, trimmed and read in any order: every entry is read once, or reported lost."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from malflow.connectors.redis import RedisDataLost, RedisStreamSource

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5)),
        st.tuples(st.just("read"), st.integers(1, 4)),
        st.tuples(st.just("trim"), st.integers(0, 6)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("resume"), st.just(0)),
    ),
    max_size=25,
)


class Model:
    """What is in the stream, and what a reader has seen."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.added = 0
        self.seen: list[int] = []
        self.next = 0
        self.lost = False
        self.has_deleted = False

    def trim(self, size: int) -> None:
        gone = self.kept[: len(self.kept) - size] if size < len(self.kept) else []
        self.kept = self.kept[len(gone) :]
        self.lost = self.lost or any(number >= self.next for number in gone)

    def read(self, limit: int) -> list[int]:
        values = [number for number in self.kept if number >= self.next][:limit]
        if values:
            self.next = values[-1] + 1
        return values


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(steps=STEPS)
def test_entries_are_read_once_or_told_lost(redis_url: str, client: Any, steps: list[tuple[str, int]]) -> None:
    stream, model = f"t-{uuid4().hex}", Model()
    source = RedisStreamSource(redis_url, stream, field="n", decode=int)
    reader = source.build_part(stream, None)
    for step, size in steps:
        if step == "add":
            for number in range(model.added, model.added + size):
                client.xadd(stream, {"n": number}, id=f"{number + 1}-0")
                model.kept.append(number)
            model.added += size
        elif step == "trim":
            client.xtrim(stream, maxlen=size, approximate=False)
            model.trim(size)
        elif step == "delete" and size < len(model.kept):
            client.xdel(stream, f"{model.kept.pop(size) + 1}-0")
            model.has_deleted = True
        elif step == "resume":
            reader.suspend()
            reader = source.build_part(stream, reader.snapshot())
        elif step == "read":
            if model.lost:
                with pytest.raises(RedisDataLost):
                    reader.poll_batch(size)
                break
            try:
                values = list(reader.poll_batch(size)[0])
            except RedisDataLost:
                assert model.has_deleted, "told without a loss"
                break
            assert values == model.read(size)
    reader.suspend()
    client.delete(stream)
