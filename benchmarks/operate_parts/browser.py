"""The page of a dataflow of 200 operators in a browser: its layout, its first picture, and an update.

The first picture is the time from the request of the address until figures are seen. An update is the work of the page
on a new progress, in each of some twenty seconds, with chains as one box and with all boxes.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from tables import print_table

from malflow.drawing import compact_document
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.streams.stream import StreamProvider
from tests.serve.browser.jobs import large
from tests.serve.browser.shown import shown
from tests.serve.browser.viewer import Viewer, launched
from tests.servers.chromium import Chromium

__all__ = ["print_browser"]

_SECONDS = 20
_UPDATES = """() => new Promise((resolve) => {
  const found = [];
  const note = (list) => list.getEntries().forEach((it) => found.push(it.duration));
  new PerformanceObserver(note).observe({type: "measure"});
  setTimeout(() => resolve(found), %d);
})"""


def print_browser(rounds: int) -> None:
    """Print the medians and the worst."""
    rows = [["layout", "10 ms", *_shown([_layout() for _ in range(rounds)])]]
    with launched(Chromium.path()) as browser, shown(large) as run:
        time.sleep(2)
        rows.append(["first picture", "1 s", *_shown([_first(browser, run.url) for _ in range(rounds)])])
        for name in ("an update, chains as one box", "an update, all boxes"):
            viewer = Viewer(browser, run.url).ready()
            if "all" in name:
                viewer.tab.get_by_text("All 200 operators").click()
                viewer.updated()
            rows.append([name, "50 ms", *_shown([it / 1000 for it in viewer.run(_UPDATES % (_SECONDS * 1000))])])
            viewer.close()
    print_table(["200 operators", "at most", "median", "worst"], rows)


def _layout() -> float:
    graph = Graph()
    large(StreamProvider(graph))
    program = compile_graph(graph)
    began = time.perf_counter()
    compact_document(program)
    return time.perf_counter() - began


def _first(browser: Any, url: str) -> float:
    viewer = Viewer(browser, url).ready()
    took = float(viewer.run("performance.getEntriesByName('malflow-ready')[0].startTime"))
    viewer.close()
    return took / 1000


def _shown(seconds: list[float]) -> list[str]:
    return [f"{1000 * it:,.0f} ms" for it in (median(seconds), max(seconds))]
