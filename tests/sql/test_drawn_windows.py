"""Drawn windows, tops and joins of drawn rows are those of a model: a plain loop over the rows as they arrive."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime
from tests.sql.slt import Script

EPOCH = datetime(2026, 3, 1)
Row = tuple[str | None, int | None, int]
"""A key, a value, and a time in milliseconds."""

TIMES = st.integers(-6, 24).map(lambda it: it * 500) | st.integers(-3, 12).map(lambda it: it * 1000 - 1)
ROWS = st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(-3, 3), TIMES)
ITEMS = st.lists(st.tuples(st.sampled_from("lr"), ROWS | TIMES), max_size=24)
"""Rows and watermarks of two tables. A watermark that goes back stays where it was."""


class Arrived(NamedTuple):
    """A row with the watermark of its table when it came."""

    row: Row
    watermark: float


class Windows(NamedTuple):
    """A window function, with its sizes in milliseconds."""

    kind: str
    size: int
    step: int
    offset: int = 0

    def call(self, table: str, key: str) -> str:
        """Return the call in FROM."""
        spans = {"TUMBLE": [self.size], "SESSION": [self.size]}.get(self.kind, [self.step, self.size])
        spans += [self.offset] if self.offset else []
        partition = f" PARTITION BY {key}" if self.kind == "SESSION" and key else ""
        given = ", ".join(f"INTERVAL '{it / 1000:.3f}' SECOND" for it in spans)
        return f"TABLE({self.kind}(TABLE {table}{partition}, DESCRIPTOR(ts), {given}))"

    def of(self, time: int) -> Iterator[tuple[int, int]]:
        """Yield the windows of a time."""
        if self.kind == "CUMULATE":
            start = (time - self.offset) // self.size * self.size + self.offset
            ends = range(start + self.step, start + self.size + 1, self.step)
            yield from ((start, end) for end in ends if time < end)
            return
        step = self.step if self.kind == "HOP" else self.size
        last = (time - self.offset) // step * step + self.offset
        yield from ((start, start + self.size) for start in range(last, time - self.size, -step))


WINDOWS = st.one_of(
    st.builds(lambda size, offset: Windows("TUMBLE", size, 0, offset % size), st.sampled_from([1000, 4000]), TIMES),
    st.builds(lambda n, step: Windows("HOP", n * step, step), st.integers(1, 3), st.sampled_from([500, 2000])),
    st.builds(lambda n, step: Windows("CUMULATE", n * step, step), st.integers(1, 3), st.sampled_from([500, 2000])),
    st.builds(lambda gap: Windows("SESSION", gap, 0), st.sampled_from([500, 1500, 3000])),
)


def arrived(items: list[tuple[str, Row | int]], table: str) -> Iterator[Arrived | float]:
    """Yield the rows of a table, and its watermarks."""
    watermark = float("-inf")
    for name, it in items:
        if name == table:
            watermark = max(watermark, it) if isinstance(it, int) else watermark
            yield watermark if isinstance(it, int) else Arrived(it, watermark)


Groups = dict[tuple[int, int, Any], list[Row]]
"""The rows of each window and key."""


def grouped(items: list[tuple[str, Row | int]], windows: Windows, key: Callable[[Row], Any]) -> Groups:
    """Return the rows that are in time for each window."""
    if windows.kind == "SESSION":
        return sessions(items, windows.size, key)
    found: Groups = defaultdict(list)
    for it in arrived(items, "l"):
        for start, end in windows.of(it.row[2]) if isinstance(it, Arrived) else ():
            if end - 1 > it.watermark:  # type: ignore[union-attr]  # only rows have windows
                found[start, end, key(it.row)].append(it.row)  # type: ignore[union-attr]
    return found


def sessions(items: list[tuple[str, Row | int]], gap: int, key: Callable[[Row], Any]) -> Groups:
    """Return the sessions of each key. They join where they touch, while they are open."""
    still_open: list[tuple[int, int, Any, list[Row]]] = []
    closed: list[tuple[int, int, Any, list[Row]]] = []
    for it in [*arrived(items, "l"), float("inf")]:
        if isinstance(it, Arrived):
            of, (start, end) = key(it.row), (it.row[2], it.row[2] + gap)
            near = [one for one in still_open if one[2] == of and one[0] <= end and start <= one[1]]
            start, end = min([start, *(one[0] for one in near)]), max([end, *(one[1] for one in near)])
            if end - 1 > it.watermark:
                still_open = [one for one in still_open if one not in near]
                still_open.append((start, end, of, [row for one in near for row in one[3]] + [it.row]))
            continue
        closed += [one for one in still_open if one[1] - 1 <= it]
        still_open = [one for one in still_open if one[1] - 1 > it]
    return {(start, end, (of, at)): rows for at, (start, end, of, rows) in enumerate(closed)}


def text(rows: list[list[Any]]) -> list[str]:
    """Return rows as the files of statements have them."""
    return sorted(json.dumps(it) for it in rows)


def at(millis: int) -> str:
    """Return an instant as a text."""
    return str(EPOCH + timedelta(milliseconds=millis))


def results(items: list[tuple[str, Row | int]], query: str, types: str, workers: int) -> list[str]:
    """Return the rows of a query over both tables."""
    script = Script("drawn")
    blocks = [f"table {it} time ts\nk STRING, v INT, ts TIMESTAMP(3)" for it in "lr"]
    for name, it in items:
        given = json.dumps([it[0], it[1], at(it[2])]) if isinstance(it, tuple) else at(it)
        blocks.append(f"{'rows' if isinstance(it, tuple) else 'watermark'} {name}\n{given}")
    script.read("\n\n".join([*blocks, f"query found\n{query}\n---- {types}"]))
    return script.run(partial(SingleThreadRuntime, parallelism=workers))["found"]


WORKERS = st.sampled_from([1, 3])


@given(ITEMS, WINDOWS, st.sampled_from(["", "k"]), st.sampled_from(["", "v > 0", "k IS NOT NULL"]), WORKERS)
def test_groups_of_windows(items: Any, windows: Windows, key: str, where: str, workers: int) -> None:
    keep: dict[str, Callable[[Row], bool]] = {
        "": lambda _: True,
        "v > 0": lambda it: it[1] is not None and it[1] > 0,
        "k IS NOT NULL": lambda it: it[0] is not None,
    }
    kept = [it for it in items if isinstance(it[1], int) or keep[where](it[1])]
    wanted = []
    for (start, end, _), rows in grouped(kept, windows, (lambda it: it[0]) if key else lambda _: "").items():
        values = [it[1] for it in rows if it[1] is not None]
        total = sum(values) if values else None
        wanted.append([at(start), at(end), *([rows[0][0]] if key else []), len(rows), total, len({*values})])
    query = f"""SELECT window_start, window_end, {f"{key}, " if key else ""}COUNT(*), SUM(v), COUNT(DISTINCT v)
        FROM {windows.call("l", key)} {f"WHERE {where}" if where else ""}
        GROUP BY window_start, window_end{f", {key}" if key else ""}"""
    types = f"""TIMESTAMP(3) NOT NULL, TIMESTAMP(3) NOT NULL, {"STRING, " if key else ""}BIGINT NOT NULL, INT,
        BIGINT NOT NULL"""
    assert results(items, query, " ".join(types.split()), workers) == text(wanted)


@given(ITEMS, st.integers(1, 3), st.booleans(), WORKERS)
def test_first_rows_of_windows(items: Any, count: int, down: bool, workers: int) -> None:
    windows = Windows("TUMBLE", 2000, 0)
    wanted = []
    for (start, _, _), rows in grouped(items, windows, lambda it: it[0]).items():
        ordered = sorted(rows, key=lambda it: (it[1] is not None, it[1] or 0))
        values = [it[1] for it in (ordered[::-1] if down else ordered)][:count]
        wanted += [[at(start), rows[0][0], value, number] for number, value in enumerate(values, 1)]
    query = f"""SELECT window_start, k, v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k
        ORDER BY v{" DESC" if down else ""}) AS n FROM {windows.call("l", "")}) WHERE n <= {count}"""
    assert results(items, query, "TIMESTAMP(3) NOT NULL, STRING, INT, BIGINT NOT NULL", workers) == text(wanted)


@given(ITEMS, st.sampled_from([(0, 0), (-1000, 500), (0, 2000), (-2000, -500)]), WORKERS)
def test_pairs_within_an_interval(items: Any, bounds: tuple[int, int], workers: int) -> None:
    in_time = {
        name: [it.row for it in arrived(items, name) if isinstance(it, Arrived) and it.row[2] > it.watermark]
        for name in "lr"
    }
    wanted = [
        [*left[:2], right[1]]
        for left, right in product(in_time["l"], in_time["r"])
        if left[0] is not None and left[0] == right[0] and bounds[0] <= right[2] - left[2] <= bounds[1]
    ]
    low, high = (f"l.ts {'-' if it < 0 else '+'} INTERVAL '{abs(it) / 1000:.3f}' SECOND" for it in bounds)
    query = f"SELECT l.k, l.v, r.v FROM l JOIN r ON l.k = r.k AND r.ts BETWEEN {low} AND {high}"
    assert results(items, query, "STRING, INT, INT", workers) == text(wanted)


@given(ITEMS, st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"]), WORKERS)
def test_pairs_within_a_window(items: Any, how: str, workers: int) -> None:
    # A window is open while the least watermark of both tables is below its end.
    marks = {"l": float("-inf"), "r": float("-inf")}
    found: dict[tuple[int, Any], dict[str, list[Row]]] = defaultdict(lambda: {"l": [], "r": []})
    windows = Windows("TUMBLE", 2000, 0)
    for number, (name, it) in enumerate(items):
        if isinstance(it, int):
            marks[name] = max(marks[name], it)
            continue
        (start, end), *_ = windows.of(it[2])
        if end - 1 > min(marks.values()):
            alone = it[0] if it[0] is not None else number  # a key of NULL is equal to none
            found[start, alone][name].append(it)
    wanted = []
    for (start, _), sides in found.items():
        left: list[Any] = sides["l"] or ([None] if how in {"RIGHT", "FULL"} else [])
        right: list[Any] = sides["r"] or ([None] if how in {"LEFT", "FULL"} else [])
        pairs = product(*([[at(start), it[1]] if it else [None, None] for it in side] for side in (left, right)))
        wanted += [[*one, *other] for one, other in pairs]
    query = f"""SELECT a.window_start, a.v, b.window_start, b.v FROM (SELECT * FROM {windows.call("l", "")}) a
        {how} JOIN (SELECT * FROM {windows.call("r", "")}) b ON a.k = b.k AND a.window_start = b.window_start
        AND a.window_end = b.window_end"""
    lacks = {"INNER": ("", ""), "LEFT": ("", "?"), "RIGHT": ("?", ""), "FULL": ("?", "?")}[how]
    one, other = ("TIMESTAMP(3)" if it else "TIMESTAMP(3) NOT NULL" for it in lacks)
    assert results(items, query, f"{one}, INT, {other}, INT", workers) == text(wanted)
