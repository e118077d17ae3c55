"""The price of a page: with one viewer, and with a hundred slow clients; and the time of a scrape.

The runs alternate in one process; the clients are another process. Times of records are processor times, with
the threads of the monitor and the page; times of ticks are wall-clock times.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Sequence
from operator import truediv
from statistics import median
from typing import Any

from tables import print_table

from malflow import SingleThreadRuntime
from malflow.events import TickFinished
from malflow.monitor import Monitor
from malflow.monitor.documents import RunFacts
from malflow.monitor.meters import Meters
from malflow.monitor.metrics import Reading
from malflow.monitor.prometheus import exposition
from malflow.runtime.progress.progress import OperatorProgress, Progress
from malflow.serve import Page
from operate_parts.monitor import summing

__all__ = ["print_page", "print_scrape"]

_PER_TICK = (8192, 64)
_TOKEN = "of-this-benchmark-alone"  # noqa: S105
_OPERATORS = 200
_VIEWER = """
import http.client, sys, time
port, token = int(sys.argv[1]), sys.argv[2]
end, number = http.client.HTTPConnection("127.0.0.1", port), 0
while True:
    for path in ("progress?after=0", "history?last=2"):
        end.request("GET", "/api/" + path, headers={"Authorization": "Bearer " + token})
        end.getresponse().read()
    time.sleep(1)
"""
_SLOW = """
import socket, sys, time
port, ends = int(sys.argv[1]), []
while True:
    for end in ends[:10]:
        end.close()
    ends = ends[10:]
    while len(ends) < 100:
        ends.append(socket.create_connection(("127.0.0.1", port)))
        ends[-1].sendall(b"GET /api/progress HTTP/1.1\\r\\nHost: ")
    time.sleep(0.5)
"""
_CLIENTS = {"plain": None, "viewer": _VIEWER, "100 slow": _SLOW}


class _Ticks:
    """Notes the durations of ticks."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_event(self, event: Any, /) -> None:
        """Note the duration of a tick."""
        if type(event) is TickFinished:
            self.seconds.append(event.seconds)


def print_page(rounds: int, records: int) -> None:
    """Print the table.

    Args:
        rounds: how often each job runs in each mode.
        records: how many records each job gets.
    """
    page = Page("127.0.0.1:0", token=_TOKEN)
    page.open()
    try:
        rows = [_row(page, per_tick, rounds, records) for per_tick in _PER_TICK]
    finally:
        page.close()
    print("\nCPU ns a record by those who look, medians; '/ plain': the speed, and the tick, medians of the rounds\n")
    heading = [f"{mode} / plain" for mode in [*_CLIENTS][1:]]
    print_table(("records a tick", *_CLIENTS, *heading, *(f"tick, {it}" for it in heading)), rows)


def _row(page: Page, per_tick: int, rounds: int, records: int) -> Sequence[str]:
    modes = [*_CLIENTS]
    cpu: dict[str, list[float]] = {mode: [] for mode in modes}
    ticks: dict[str, list[float]] = {mode: [] for mode in modes}
    for turn in range(rounds):
        for mode in [*modes[turn % len(modes) :], *modes[: turn % len(modes)]]:
            taken, tick = _measured(page, per_tick, records, mode)
            cpu[mode].append(taken)
            ticks[mode].append(tick)
    speeds = [median(map(truediv, cpu["plain"], cpu[mode])) for mode in modes[1:]]
    longer = [median(map(truediv, ticks[mode], ticks["plain"])) for mode in modes[1:]]
    return (
        f"{per_tick:,}",
        *(f"{median(cpu[it]):,.0f}" for it in modes),
        *(f"{it:.3f}" for it in (*speeds, *longer)),
    )


def _measured(page: Page, per_tick: int, records: int, mode: str) -> tuple[float, float]:
    """Return the processor time of a run, in ns a record, and the median of its ticks, in seconds."""
    program, clients = _CLIENTS[mode], None
    if program is not None:
        port = (page.address or "").rstrip("/").rpartition(":")[2]
        clients = subprocess.Popen([sys.executable, "-c", program, port, _TOKEN], stderr=subprocess.DEVNULL)  # noqa: S603
        time.sleep(0.3)
    ticks = _Ticks()
    listeners = [ticks] if mode == "plain" else [ticks, Monitor(page)]
    gc.collect()
    try:
        start = time.process_time()
        SingleThreadRuntime(summing(per_tick, records), listeners=listeners).execute()
        taken = time.process_time() - start
    finally:
        if clients is not None:
            clients.kill()
            clients.wait()
    return taken / records * 1e9, median(ticks.seconds)


def print_scrape() -> None:
    """Print the time of a scrape of a large dataflow."""
    operators = {f"operator-{it}": OperatorProgress(it, (it,), keys=it) for it in range(_OPERATORS)}
    progress = Progress(1, 4, {}, 0, None, 0, operators=operators, status="running")
    reading = Reading(RunFacts("0", "job", "single", 1), progress, Meters(), time.monotonic())
    taken = []
    for _ in range(30):
        start = time.perf_counter()
        text, _kind = exposition(reading, "")
        taken.append(time.perf_counter() - start)
    series = sum(not it.startswith(b"#") for it in text.splitlines())
    print(f"\na scrape of {_OPERATORS} operators, {series:,} series: {median(taken) * 1000:.1f} ms")
