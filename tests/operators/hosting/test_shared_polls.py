"""The limit of a tick, shared by parts of which some have less than their share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from malflow.event_time.tick import Tick
from malflow.operators.contract import OperatorContext
from malflow.operators.hosting.source import Source
from malflow.sources import (
    StatefulSource,
    StatefulSourceImpl,
    StatefulSourcePartition,
)


class Stocks(StatefulSourceImpl[str, int, int, int]):
    """Parts with some records each, of which more may come."""

    def __init__(self, stocks: Sequence[int]) -> None:
        self._stocks = {f"part {at}": stock for at, stock in enumerate(stocks)}

    def list_parts(self) -> Iterable[str]:
        return list(self._stocks)

    def build_part(self, part: str, state: int | None) -> Stock:
        return Stock(self._stocks[part], state or 0)


class Stock(StatefulSourcePartition[int, int, int]):
    """The reader of one."""

    def __init__(self, stock: int, position: int) -> None:
        self._stock, self._position = stock, position

    def poll_batch(self, limit: int) -> tuple[Sequence[int], Sequence[int]]:
        start, self._position = self._position, min(self._position + limit, self._stock)
        return range(start, self._position), range(start, self._position)

    def poll(self) -> tuple[int, int] | None:
        raise AssertionError("it is polled by batches")

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> int:
        return self._position


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=6), st.integers(64, 8_192))
def test_parts_with_more_records_get_the_share_of_those_with_fewer(stocks: list[int], limit: int) -> None:
    impl = Stocks(stocks)
    source = Source(
        OperatorContext("stocks", 0, range(1), False, False),
        StatefulSource(impl),
        keyed=True,
        parts=[*impl.list_parts()],
    )
    source.open()
    source.begin_tick(Tick(limit=limit))
    [[batch]] = source.run(())
    keys = batch.keys or ()
    read = Counter(keys)
    for part in read:
        values = [value for key, value in zip(keys, batch.values, strict=True) if key == part]
        assert values == [*range(len(values))], "each record once, in order"
    assert source.polled_by_part == read
    assert len(batch) <= max(limit, 64 * len(stocks))
    waiting = [part for part, stock in zip(impl.list_parts(), stocks, strict=True) if read[part] < stock]
    assert not waiting or len(batch) > limit - 64 * len(waiting), "all that there is, or nearly the limit"
    assert {read[part] for part in waiting} <= {max(read.values(), default=0)}, "nobody has read more than who waits"
