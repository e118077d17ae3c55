"""What the benchmark of SQL runs: jobs as SQL, and the same by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple

from malflow import SingleThreadRuntime, agg
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.sources import SingleIteratorSource
from malflow.windows import session, sliding, tumbling

__all__ = ["Totals", "bids", "chains", "run", "times"]

_SMALL = 256
"""The records of a small batch. The largest ones that the engine makes have 8,192."""

_FLOOR, _LEAST = 5_000_000, 30_000
_NULLS = 0.1
"""The share of NULLs in a column that has some."""

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_NAMES = ("auction", "bidder", "price", "channel", "ts")
_SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts BIGINT"
_CHAIN = """
SELECT auction, bidder, price * 2 AS price, channel, ts FROM bids
WHERE price > 5000000 AND channel <> 'channel-3' AND bidder > 30000
"""


class Bid(NamedTuple):
    """A bid as an object."""

    auction: int
    bidder: int | None
    price: int | None
    channel: str | None
    ts: int


class Totals(StatelessSinkImpl[Any, Any, Any]):
    """A sink that counts rows, and adds up one of their columns."""

    def __init__(self, column: Any) -> None:
        self.count = self.total = 0
        self._column = column

    def sink(self, msg: Any) -> None:
        """Add one row."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, _keys: Sequence[Any], values: Sequence[Any], _timestamps: Sequence[Any]) -> None:
        """Add the rows of a batch."""
        column = self._column
        self.count += len(values)
        self.total += sum([it[column] for it in values])


def run(build: Callable[[Any, Any], None], column: Any) -> tuple[int, int]:
    """Run a dataflow into a sink that adds up; return how many rows came, and the sum of a column."""
    totals = Totals(column)
    SingleThreadRuntime(lambda provider: build(provider, StatelessSink(totals)), at_end="finish").execute()
    return totals.count, totals.total


def bids(count: int, *, nulls: bool) -> list[dict[str, Any]]:
    """Make bids at 1,000 a second, up to three seconds out of order; a tenth of some columns is NULL if wanted."""
    random = Random(7)

    def some(value: Any) -> Any:
        return None if nulls and random.random() < _NULLS else value

    return [
        {
            "auction": random.randrange(1000),
            "bidder": some(random.randrange(100_000)),
            "price": some(random.randrange(10_000_000)),
            "channel": some(f"channel-{random.randrange(20)}"),
            "ts": 10_000 + number - random.randrange(3000),
        }
        for number in range(count)
    ]


class Chain(NamedTuple):
    """A chain as SQL and by hand, over rows of one kind."""

    by_sql: Callable[[Any, Any], None]
    by_hand: Callable[[Any, Any], None]
    checked: Callable[[Any, Any], None]
    column: Any


class _Few(SingleIteratorSource[Any]):
    """A list of rows that comes in small batches."""

    def build_part(self, part: Any) -> Any:
        """Return a reader that returns a few rows at a time."""
        found = super().build_part(part)
        take = found.poll_batch
        found.poll_batch = lambda limit: take(min(limit, _SMALL))  # type: ignore[method-assign]
        return found


def chains(count: int) -> Mapping[str, Chain]:
    """Return the chain for each kind of row, without and with NULLs."""
    found = {}
    for nulls in (False, True):
        dicts = bids(count, nulls=nulls)
        tuples = [tuple(it.values()) for it in dicts]
        objects = [Bid(*it) for it in tuples]
        what = "with NULLs" if nulls else "without"
        found[f"dicts, {what}"] = _chain(dicts, dict, _hand_dicts(nulls), itemgetter(*_NAMES), "price")
        found[f"tuples, {what}"] = _chain(tuples, tuple, _hand_tuples(nulls), tuple, 2)
        found[f"objects to tuples, {what}"] = _chain(objects, tuple, _hand_objects(nulls), tuple, 2)
        found[f"dicts, {what}, by {_SMALL}"] = _chain(
            _Few(dicts), dict, _hand_dicts(nulls), itemgetter(*_NAMES), "price"
        )
    return found


def _chain(rows: Any, kind: Any, by_hand: tuple[Any, Any], read: Any, column: Any) -> Chain:
    rows = rows if isinstance(rows, _Few) else SingleIteratorSource(rows)
    predicate, mapper = by_hand
    hand = partial(_chain_by_hand, rows, predicate, mapper)
    return Chain(partial(_chain_by_sql, rows, kind), partial(hand, None), partial(hand, _checking(read)), column)


def _checking(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that checks the types of a bid as SQL's door does, as one writes it by hand."""

    def check(it: Any) -> Any:
        auction, bidder, price, channel, ts = read(it)
        for number in (auction, bidder, price, ts):
            if number is not None and (type(number) is not int or not _LOWEST <= number <= _HIGHEST):
                raise ValueError(f"{number!r} is no BIGINT")
        if channel is not None and type(channel) is not str:
            raise ValueError(f"{channel!r} is no STRING")
        return it

    return check


def _chain_by_sql(rows: Any, kind: Any, provider: Any, sink: Any) -> None:
    sql = provider.sql("shop")
    sql.table("bids", provider.new_stream().source("bids", rows), _SCHEMA)
    sql.query("dear", _CHAIN).rows(kind).sink("out", sink)


def _chain_by_hand(rows: Any, predicate: Any, mapper: Any, check: Any, provider: Any, sink: Any) -> None:
    stream = provider.new_stream().source("bids", rows)
    if check is not None:
        stream = stream.map("check", check)
    stream.filter("dear", predicate).map("row", mapper).sink("out", sink)


def _hand_dicts(nulls: bool) -> tuple[Any, Any]:
    def mapper(it: Any) -> Any:
        return {
            "auction": it["auction"],
            "bidder": it["bidder"],
            "price": it["price"] * 2,
            "channel": it["channel"],
            "ts": it["ts"],
        }

    if not nulls:
        return lambda it: it["price"] > _FLOOR and it["channel"] != "channel-3" and it["bidder"] > _LEAST, mapper
    return (
        lambda it: (
            it["price"] is not None
            and it["price"] > _FLOOR
            and it["channel"] is not None
            and it["channel"] != "channel-3"
            and it["bidder"] is not None
            and it["bidder"] > _LEAST
        ),
        mapper,
    )


def _hand_tuples(nulls: bool) -> tuple[Any, Any]:
    def mapper(it: Any) -> Any:
        return it[0], it[1], it[2] * 2, it[3], it[4]

    if not nulls:
        return lambda it: it[2] > _FLOOR and it[3] != "channel-3" and it[1] > _LEAST, mapper
    return (
        lambda it: (
            it[2] is not None
            and it[2] > _FLOOR
            and it[3] is not None
            and it[3] != "channel-3"
            and it[1] is not None
            and it[1] > _LEAST
        ),
        mapper,
    )


def _hand_objects(nulls: bool) -> tuple[Any, Any]:
    def mapper(it: Any) -> Any:
        return it.auction, it.bidder, it.price * 2, it.channel, it.ts

    if not nulls:
        return lambda it: it.price > _FLOOR and it.channel != "channel-3" and it.bidder > _LEAST, mapper
    return (
        lambda it: (
            it.price is not None
            and it.price > _FLOOR
            and it.channel is not None
            and it.channel != "channel-3"
            and it.bidder is not None
            and it.bidder > _LEAST
        ),
        mapper,
    )


class Time(NamedTuple):
    """A job over time as SQL and by hand."""

    by_sql: Callable[[Any, Any], None]
    by_hand: Callable[[Any, Any], None]
    column: str


_TABLE = """
CREATE TABLE {} (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3),
                 WATERMARK FOR ts AS ts - INTERVAL '3' SECOND) WITH ('url' = 'kafka://broker/bids');
"""
_WINDOWED = """
SELECT window_start, auction, COUNT(*) AS n, SUM(price) AS total FROM TABLE({})
GROUP BY window_start, window_end, auction
"""
_QUERIES = {
    "tumbling": _WINDOWED.format("TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)"),
    "hopping": _WINDOWED.format("HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)"),
    "session": _WINDOWED.format("SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '3' SECOND)"),
    "window join": """
        SELECT a.auction, a.n, b.total FROM
        (SELECT window_start, window_end, auction, COUNT(*) AS n
         FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
         GROUP BY window_start, window_end, auction) a
        JOIN
        (SELECT window_start, window_end, auction, SUM(price) AS total
         FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
         GROUP BY window_start, window_end, auction) b
        ON a.auction = b.auction AND a.window_start = b.window_start AND a.window_end = b.window_end""",
    "interval join": """
        SELECT a.auction, a.price, b.price AS total FROM bids a JOIN offers b
        ON a.auction = b.auction AND b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts + INTERVAL '1' SECOND""",
    "top-n": """
        SELECT auction, total, n FROM (
          SELECT auction, price AS total, ROW_NUMBER() OVER (
            PARTITION BY window_start, window_end, auction ORDER BY price DESC) AS n
          FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE n <= 3""",
}


def times(count: int) -> Mapping[str, Time]:
    """Return the jobs over time."""
    rows = bids(count, nulls=False)
    sides = rows[::2], rows[1::2]
    hand: dict[str, Callable[..., Any]] = {
        "tumbling": partial(_windowed, tumbling(10_000)),
        "hopping": partial(_windowed, sliding(10_000, 2_000)),
        "session": partial(_windowed, session(3_000, touch=True)),
        "window join": _window_join,
        "interval join": _interval_join,
        "top-n": _top,
    }
    return {
        name: Time(
            partial(_time_by_sql, _QUERIES[name], tables),
            partial(_time_by_hand, by_hand, tables),
            "total",
        )
        for name, by_hand in hand.items()
        for tables in [
            {"bids": sides[0], "offers": sides[1]} if "join" in name else {"bids": rows},
        ]
    }


def _time_by_sql(query: str, tables: Mapping[str, Sequence[Any]], provider: Any, sink: Any) -> None:
    sql = provider.sql("shop", connect=lambda name, _url, _options: SingleIteratorSource(tables[name]))
    sql.run("".join(map(_TABLE.format, tables)))
    sql.query("hot", query).rows().sink("out", sink)


def _time_by_hand(job: Callable[..., Any], tables: Mapping[str, Sequence[Any]], provider: Any, sink: Any) -> None:
    timed = [
        provider.new_stream()
        .source(name, SingleIteratorSource(rows))
        .event_time(f"{name} times", "ts", out_of_orderness=3_000)
        .key_distribute(f"{name} key", "auction")
        for name, rows in tables.items()
    ]
    job(*timed).sink("out", sink)


def _windowed(windows: Any, bids_: Any) -> Any:
    results = bids_.window(windows).aggregate("windows", agg.count(), agg.sum("price"))
    return results.map_with_key(
        "row",
        lambda key, it: {"window_start": it.start, "auction": key, "n": it.value[0], "total": it.value[1]},
    )


def _window_join(bids_: Any, offers: Any) -> Any:
    counts = bids_.window(tumbling(10_000)).aggregate("counts", agg.count())
    totals = offers.window(tumbling(10_000)).aggregate("totals", agg.sum("price"))
    groups = counts.window(tumbling(10_000)).cogroup("join", totals)
    return groups.map_with_key("pairs", _pairs).flatten("rows")


def _pairs(key: Any, result: Any) -> list[Any]:
    return [
        {"auction": key, "n": one.value, "total": other.value} for one in result.value[0] for other in result.value[1]
    ]


def _interval_join(bids_: Any, offers: Any) -> Any:
    pairs = bids_.interval_join("join", offers, before=1_000, after=1_000)
    return pairs.map(
        "row", lambda pair: {"auction": pair[0]["auction"], "price": pair[0]["price"], "total": pair[1]["price"]}
    )


def _top(bids_: Any) -> Any:
    best = bids_.window(tumbling(10_000)).aggregate("best", agg.largest(3, "price"))
    return best.map_with_key(
        "rows",
        lambda key, it: [{"auction": key, "total": price, "n": number} for number, price in enumerate(it.value, 1)],
    ).flatten("row")
