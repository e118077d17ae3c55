"""Notebooks show runs, their progress and their time as tables."""

from __future__ import annotations

import html
import sys
import threading
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from malflow import GraphError, MissingDependency, SingleThreadRuntime, StreamProvider, TimeRow, TimeTable
from malflow.drawing.text import table
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource

pytestmark = pytest.mark.slow


def flow(provider: StreamProvider) -> None:
    provider.new_stream().source("numbers", SingleIteratorSource(range(1_200))).sink("out", VecSink())


def test_a_handle_shows_its_dataflow_and_progress() -> None:
    handle = SingleThreadRuntime(flow, parallelism=2).start()
    handle.await_termination()
    shown = handle._repr_mimebundle_()
    assert shown["text/plain"].splitlines()[-1] == f"ended, tick {handle.progress.tick}, parallelism 2"
    assert "│ numbers " in shown["text/plain"]
    assert "<svg " in shown["text/html"]
    assert "<p>ended</p><table>" in shown["text/html"]


def test_progress_is_a_table_of_the_operators() -> None:
    runtime = SingleThreadRuntime(flow)
    runtime.execute()
    shown = runtime.progress._repr_mimebundle_()
    assert shown["text/plain"] == repr(runtime.progress)
    for name, read in (("numbers", "100%"), ("out", "")):
        assert f"<tr><td>{name}</td><td>1,200</td><td></td><td></td><td></td><td>{read}</td></tr>" in shown["text/html"]
    assert "<caption>ended, tick " in shown["text/html"]


def test_a_time_table_is_a_table_of_those_that_wait() -> None:
    row = TimeRow("sums", 0, "windows", 3, 10, 20, "time", "numbers", "a.txt", 10, timedelta(minutes=9))
    shown = TimeTable(datetime.now(UTC), (row,), {"time": 2}, {"time": 5})._repr_mimebundle_()
    cells = ["sums", "3 windows", "10", "20", "numbers", "&#39;a.txt&#39;", "540 s", "time"]
    assert "".join(f"<td>{cell}</td>" for cell in cells) in shown["text/html"]
    assert "<caption>late so far: 2 records at &#39;time&#39;, by at most 5</caption>" in shown["text/html"]
    assert "operator 'sums' has 3 windows open" in shown["text/plain"]


def test_truth_values_are_words_and_nothing_is_empty() -> None:
    assert "<tr><td>True</td><td></td><td>-1,000</td></tr>" in table(["a", "b", "c"], [[True, None, -1000]])


HOSTILE = "<img src=x onerror=alert(1)><script>\"'& of me"


def test_hostile_names_are_text_in_all_of_them() -> None:
    shown: list[dict[str, str]] = []

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source(HOSTILE, SingleIteratorSource([1]))
        table_of = stream.map(f"{HOSTILE} 2", lambda it: it)
        table_of.sink(f"{HOSTILE} 3", VecSink())
        shown.append(table_of._repr_mimebundle_())

    handle = SingleThreadRuntime(build).start()
    handle.await_termination()
    row = TimeRow(HOSTILE, 0, HOSTILE, 3, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, timedelta(minutes=9))
    times = TimeTable(datetime.now(UTC), (row,), {HOSTILE: 2}, {HOSTILE: HOSTILE})
    shown += [handle._repr_mimebundle_(), handle.progress._repr_mimebundle_(), times._repr_mimebundle_()]
    for it in shown:
        tags = Tags()
        tags.feed(it["text/html"])
        assert not tags.seen & {"img", "script"}
        assert not any(name.startswith("on") for name in tags.attributes)
        assert HOSTILE in html.unescape(it["text/html"]) or "onerror" in html.unescape(it["text/html"])


class Tags(HTMLParser):
    """The tags and attributes of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.seen.add(tag)
        self.attributes.update(name for name, _ in attrs)


class Display:
    """The display of a notebook, whose places can be redrawn, or a shell without places."""

    def __init__(self, *, has_places: bool = True) -> None:
        self.drawn: list[str] = []
        self.updates = 0
        self._has_places = has_places

    def __call__(self, shown: Any, *, display_id: bool = False) -> Any:
        """Draw an object in its own place."""
        assert display_id or not self._has_places
        self.drawn.append(shown._repr_mimebundle_()["text/plain"])
        return self if self._has_places else None

    def update(self, shown: Any) -> None:
        """Redraw it."""
        self.updates += 1
        self.drawn.append(shown._repr_mimebundle_()["text/plain"])


@pytest.mark.parametrize("has_places", [True, False])
def test_a_run_that_is_watched(has_places: bool) -> None:
    display = Display(has_places=has_places)
    handle = SingleThreadRuntime(endless).start()
    threading.Timer(0.5, handle.stop).start()
    handle.watch(0.1, display=display)
    assert handle.has_ended
    assert len(display.drawn) >= 3
    assert display.updates == (len(display.drawn) - 1 if has_places else 0)
    assert "ended, tick" in display.drawn[-1]
    assert "running, tick" in display.drawn[1] or "starting, tick" in display.drawn[1]


def endless(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", ScriptedSource([1, PAUSE] * 100_000))
    numbers.sink("out", VecSink())


def test_an_interrupted_cell_leaves_the_run() -> None:
    class Interrupted(Display):
        def update(self, shown: Any) -> None:
            raise KeyboardInterrupt

    handle = SingleThreadRuntime(endless).start()
    handle.watch(0.01, display=Interrupted())
    assert not handle.has_ended
    handle.stop()
    handle.await_termination()


def test_mistakes_of_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = SingleThreadRuntime(flow).start()
    handle.await_termination()
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(MissingDependency, match="pip install ipython"):
        handle.watch()
    for wrong in (0, -1, True, "x", float("nan")):
        with pytest.raises(GraphError, match="every must be a time above zero"):
            handle.watch(wrong, display=Display())
