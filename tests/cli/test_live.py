"""``malflow run --live``: a terminal is left as it was, and a pipe gets plain lines."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from malflow.cli.output import live as live_view
from malflow.cli.output.live import LiveArea, LiveView, terminal_below
from malflow.cli.output.screens import Bars
from malflow.cli.output.texts import bar
from tests.cli.conftest import Malflow, Script, environment
from tests.cli.terminals import seen, terminal

pytestmark = pytest.mark.slow

FLOW = """
    import itertools, os, time, sys

    def slow():
        for number in itertools.count():
            time.sleep(0.01)
            if number == 40:
                print("a line of the script")
                print("a line of its errors", file=sys.stderr)
            if number == 60 and os.environ.get("CRASH"):
                raise RuntimeError("no more")
            if os.path.exists("enough"):
                break
            yield number

    def endless(provider):
        numbers = provider.new_stream().source("n", SingleIteratorSource(slow()))
        numbers.map("double \u4e16\u754c", lambda it: it * 2)

    SingleThreadRuntime(endless).execute()
"""


class Screen(io.StringIO):
    """A terminal that remembers its input."""

    def isatty(self) -> bool:
        """Return True, as it is a terminal."""
        return True


class Sized(LiveArea):
    """An area on a terminal of a known size."""

    columns, rows = 20, 12

    @property
    def size(self) -> os.terminal_size:
        """The size."""
        return os.terminal_size((self.columns, self.rows))


texts = st.text("ab \u4e16", max_size=30)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(texts, min_size=1, max_size=3)),
        st.tuples(st.just("part"), texts),
        st.tuples(st.just("draw"), st.lists(texts, min_size=1, max_size=16)),
        st.tuples(st.just("keep"), st.none()),
    ),
    max_size=20,
)


@pytest.mark.fault("T3")
@given(steps=steps)
def test_the_area_is_below_all_that_is_written(steps: list[tuple[str, Any]]) -> None:
    screen = Screen()
    area = Sized(screen)
    written, drawn = "", list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", screen)
        patch.setattr(sys, "stderr", screen)
        with terminal_below(area):
            for step, what in steps:
                match step:
                    case "write":
                        print("\n".join(what))
                        written, drawn = written + "\n".join(what) + "\n", []
                    case "part":
                        sys.stderr.write(what)
                        written, drawn = written + what, []
                    case "draw":
                        area.draw(what)
                        if not written or written.endswith("\n"):
                            drawn = what
                    case _:
                        area.keep()
                        written, drawn = written + "".join(f"{it}\n" for it in shown(drawn)), []
    assert seen(screen.getvalue()) == [*written.split("\n")[:-1], *shown(drawn), written.rpartition("\n")[2]]


def shown(lines: list[str]) -> list[str]:
    """Return the lines that fit into a terminal of 20 columns and 12 lines."""
    kept = lines if len(lines) <= 11 else [*lines[:10], f"and {len(lines) - 10} more lines"]
    return [it if cell_len(it) < 20 else cut(it) for it in kept]


def cut(line: str) -> str:
    """Return the beginning of a line, at most 19 columns."""
    while cell_len(line) > 19:
        line = line[:-1]
    return line.rstrip()


@pytest.mark.fault("T2")
def test_lines_that_a_narrower_terminal_has_wrapped_are_removed() -> None:
    screen = Screen()
    area = Sized(screen)
    area.draw(["x" * 19, "y"])
    area.columns = 7
    area.draw(["z"])
    assert screen.getvalue().endswith("\x1b[4F\x1b[Jz\n"), "19 columns take three lines of 7"


@pytest.mark.fault("T2")
def test_a_terminal_that_has_gone_ends_nothing() -> None:
    class Gone(Screen):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    area = LiveArea(Gone())
    area.draw(["x"])
    area.draw(["y"])


@given(share=st.floats(-1, 2), width=st.integers(1, 40))
def test_bars_have_their_width(share: float, width: int) -> None:
    drawn = bar(share, width)
    assert len(drawn) == width
    assert abs(drawn.count("█") - min(1, max(0, share)) * width) <= 1


def test_bars_reckon_the_time_that_is_left() -> None:
    bars = Bars()

    def progress(read: int) -> dict[str, Any]:
        return {"operators": [{"name": "a\x1b[2J", "share": [read, 100]}, {"name": "b", "share": None}]}

    assert bars.lines(progress(0), 0.0, 60) == [f"a\\x1b[2J {' ' * 30}   0%"]
    assert bars.lines(progress(25), 10.0, 60) == [f"a\\x1b[2J {'█' * 7}▌{' ' * 22}  25%, 30 s left"]
    assert bars.lines(progress(25), 10.0, 20) == ["a\\x1b[2J  25%, 30 s left"]
    assert bars.text(progress(100), 40.0) == "a\\x1b[2J 100%"


@pytest.mark.fault("T1")
@pytest.mark.slow
@pytest.mark.parametrize("end", ["ctrl-c", "sigterm", "kill", "crash"])
def test_a_terminal_is_left_as_it_was(end: str, script: Script) -> None:
    script(FLOW)
    with terminal("run", "flow.py", "--live", columns=60, **({"CRASH": "1"} if end == "crash" else {})) as shell:
        before = shell.modes
        shell.read_until("double")
        shell.read_until("its errors")
        if end == "ctrl-c":
            shell.resize(24)
            shell.send("\x03")
        elif end != "crash":
            shell.process.send_signal(signal.SIGTERM if end == "sigterm" else signal.SIGKILL)
        code = shell.read_all()
        assert shell.modes == before
        assert code == {"kill": -9, "crash": 5}.get(end, 0)
    assert "\x1b[?" not in shell.text
    assert "\x1b[2J" not in shell.text
    lines = seen(shell.text.replace("^C", ""))
    assert "a line of the script" in lines
    assert "a line of its errors" in lines
    if end != "kill":
        assert (
            sum(it.startswith(("running flow", "flow stopped", "flow failed")) or "flow.py" in it for it in lines) >= 2
        )
        assert lines[-1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}], ids=str)
def test_environments(variables: dict[str, str], script: Script) -> None:
    script(FLOW)
    with terminal("run", "flow.py", "--live", "--count", 80, columns=20, **variables) as shell:
        assert shell.read_all() == 0
    lines = seen(shell.text)
    if "FORCE_COLOR" not in variables:
        assert "\x1b[3" not in shell.text
    if variables == {"TERM": "dumb"}:
        assert "\x1b" not in shell.text
    else:
        assert any(it.startswith("default  single") for it in lines)
        assert all(cell_len(it) < 20 for it in lines if it.startswith(("operator", "n ", "default")))


def test_plain_lines_where_there_is_no_terminal(
    malflow: Malflow, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(FLOW)
    monkeypatch.setattr(live_view, "_LINE_SECONDS", 0.1)
    due: list[float] = []
    draw = LiveView._draw

    def draw_and_end(view: LiveView, run: Any, now: float) -> None:
        draw(view, run, now)
        due.append(now)
        if len(due) % 3 == 0:
            Path("enough").touch()

    monkeypatch.setattr(LiveView, "_draw", draw_and_end)
    done = malflow("run", "flow.py", "--live")
    lines = [it for it in done.err.splitlines() if it.startswith("default  single x1  running")]
    assert len(lines) == len(due) >= 3
    assert all(later - earlier >= 0.1 for earlier, later in pairwise(due))
    assert done.err.replace("\n", "").isprintable()
    quiet = malflow("run", "flow.py", "--live", "--count", 30, "-q")
    assert "default" not in quiet.err
    Path("enough").unlink()
    due.clear()
    documents = malflow("run", "flow.py", "--live", "--json").err.splitlines()
    kinds = [json.loads(it)["kind"] for it in documents if it.startswith("{")]
    assert kinds.count("progress") == len(due) >= 3


@pytest.mark.slow
def test_a_closed_standard_error(script: Script) -> None:
    script(FLOW)
    command = f"exec {sys.executable} -m malflow run flow.py --live --count 30 2>&-"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=60, check=False, env=environment())
    assert (done.returncode, done.stderr) == (0, b"")


def test_shares_of_files_and_lists(malflow: Malflow, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script("""
    import time
    from malflow import connect

    def slow(value):
        time.sleep(0.002)
        return value

    def bounded(provider):
        rows = provider.new_stream().source("rows", connect("rows.csv")).map("r", slow)
        words = provider.new_stream().source("items", SingleIteratorSource([*range(200)])).map("w", slow)

    SingleThreadRuntime(bounded).execute()
    """)
    Path("rows.csv").write_text("a,b\n" + "".join(f"{at},{at}\n" for at in range(200)))
    monkeypatch.setattr(live_view, "_LINE_SECONDS", 0.1)
    done = malflow("run", "flow.py", "--live")
    shares = [line.partition("rows ")[2].partition("%")[0] for line in done.err.splitlines() if "rows " in line]
    numbers = [int(it) for it in shares if it.isdigit()]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 2
    assert "items " in done.err
