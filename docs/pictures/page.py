"""Makes the pictures of docs/operating.md in a real browser: ``python -m docs.pictures.page``; needs Chromium."""

from __future__ import annotations

import csv
import gzip
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from examples import flight_delays
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from tests.serve.browser.jobs import Forget, stalled
from tests.serve.browser.shown import shown
from tests.serve.browser.viewer import Viewer, launched
from tests.servers.chromium import Chromium

__all__ = ["PICTURES", "main"]

PICTURES = Path(__file__).parent
"""Where they lie."""

_SECOND = 3000
"""The flights a second: a job that is over at once has nothing to show."""

_MINUTE = 45
"""The seconds that a job runs before it is shown."""


_LOOKS: dict[str, list[tuple[Literal["light", "dark"], int, int]]] = {
    "flights": [("light", 1280, 850), ("dark", 1280, 850), ("light", 390, 1180), ("dark", 390, 1180)],
    "stalled": [("light", 1280, 920), ("dark", 390, 1180)],
}
"""The scheme, the width and the height of each picture of a job."""


class CsvSource(SingleIteratorSource[dict[str, str]]):
    """Flights of January in one year after the other, at a steady rate."""

    def __init__(self, file: Path) -> None:
        super().__init__(_flights(file))


def _flights(file: Path) -> Iterator[dict[str, str]]:
    with gzip.open(file, "rt", encoding="utf-8") as content:
        rows = [*csv.DictReader(content)]
    due, number = time.monotonic(), 0
    for year in range(2013, 2100):
        for row in rows:
            if number % (_SECOND // 20) == 0:
                time.sleep(max(0.0, due + number / _SECOND - time.monotonic()))
            number += 1
            yield {**row, "year": str(year)}


def _flight_delays() -> Callable[[Any], None]:
    flight_delays.CsvSource = CsvSource  # type: ignore[assignment,misc] # paced
    return flight_delays.build(Forget(), Forget(), Forget(), Forget())


def _take(browser: Any, url: str, name: str, scheme: Literal["light", "dark"], size: tuple[int, int]) -> None:
    width, height = size
    viewer = Viewer(browser, url, width=width, scheme=scheme, height=height)
    viewer.ready()
    if name == "flights":
        viewer.show("hourly delays")
        viewer.sees("Records reach the sinks")
    else:
        viewer.tab.locator(".alert button[aria-expanded]").click()
    viewer.updated(3)
    viewer.tab.mouse.move(1, 1)
    viewer.tab.screenshot(path=PICTURES / f"page_{name}_{scheme}_{width}.png")
    viewer.close()


def main() -> int:
    """Make all of them; return the code to exit with."""
    with launched(Chromium.path()) as browser, tempfile.TemporaryDirectory() as folder:
        jobs = (("flights", "flight_delays", _flight_delays(), 1), ("stalled", "words", stalled, 4))
        for name, job, build, workers in jobs:
            store = FsspecBackend(folder, job=job)
            with shown(build, store, timedelta(seconds=5), parallelism=workers) as run:
                time.sleep(_MINUTE)
                for scheme, width, height in _LOOKS[name]:
                    _take(browser, run.url, name, scheme, (width, height))
    return 0


if __name__ == "__main__":
    sys.exit(main())
