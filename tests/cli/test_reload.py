"""``malflow run --reload``: real processes, edits of all kinds, and state that survives them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import pytest

from malflow.cli.commands.run import run
from malflow.cli.running.reload import changed_names, given_to, modules_in
from malflow.snapshot import FsspecBackend, read_state
from tests.cli.conftest import Script, environment
from tests.cli.terminals import terminal
from tests.kit.nights import only_nightly
from tests.kit.waiting import wait_until

FLOW = """
    import os, sys, time
    from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
    from steps import step

    class Part(StatefulSourcePartition):
        def __init__(self, at):
            self.at = at

        def poll(self):
            time.sleep(0.01)
            self.at += 1
            return self.at, self.at

        def is_finished(self):
            return os.path.exists("finish")

        def snapshot(self):
            return self.at

    class Numbers(StatefulSourceImpl):
        def list_parts(self):
            return ["all"]

        def build_part(self, part, state):
            return Part(state or 0)

    def counted(provider):
        numbers = provider.new_stream().source("numbers", StatefulSource(Numbers()))
        numbers.map("step", step).sink("out", StdOutSink(formatter=lambda msg: f"{msg.value} {os.getpid()}"))

    if __name__ == "__main__":
        SingleThreadRuntime(counted).execute()
"""


SLOW_END = """
        while os.path.exists("hold"):
            time.sleep(0.02)
"""
"""What the flow does after its run, so that its process ends late."""


def edit(word: str, name: str = "steps.py") -> None:
    """Change the word that the flow writes."""
    Path(name).write_text(f"def step(number):\n    return f'{word} {{number}}'\n")


def kept_position() -> int:
    """Return the position of the source in the last snapshot."""
    (position,) = dict(
        read_state(FsspecBackend(".malflow", job="flow", allow_unsigned_pickle=True), "numbers")
    ).values()
    return int(position)


class Reloading:
    """A flow under ``--reload``, and its output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        """The word, the number and the process of each complete line."""
        lines = Path("out.txt").read_text().split("\n")[:-1]
        return [(word, int(number), int(pid)) for word, number, pid in map(str.split, lines)]

    @property
    def told(self) -> str:
        """The text on standard error."""
        return Path("err.txt").read_text()

    def wait_for(self, word: str, since: int = 0) -> int:
        """Wait until the flow writes a word; return the id of the process that wrote it."""
        wait_until(lambda: any(it[0] == word for it in self.rows[since:]), 60)
        return next(it[2] for it in self.rows[since:] if it[0] == word)

    def wait_until_told(self, words: str, times: int = 1) -> None:
        """Wait until some words appear on standard error."""
        wait_until(lambda: self.told.count(words) >= times, 60)

    def check_exact(self) -> None:
        """Check that each number was written once."""
        assert [number for _, number, _ in self.rows] == [*range(1, len(self.rows) + 1)]


@contextmanager
def reloading(*options: str) -> Iterator[Reloading]:
    """Run the flow under ``--reload`` within the context."""
    edit("one")
    command = [sys.executable, "-m", "malflow", "run", "flow.py", "--reload", *options]
    with Path("out.txt").open("wb") as out, Path("err.txt").open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment(), start_new_session=True)
    try:
        yield Reloading(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.fault("T6")
@pytest.mark.fault("T7")
@pytest.mark.slow
@pytest.mark.nightly
def test_state_over_edits_good_and_bad(script: Script) -> None:
    script(FLOW + SLOW_END)
    with reloading() as flow:
        first = flow.wait_for("one")
        wait_until(lambda: len(flow.rows) > 20)
        text = Path("flow.py").read_text()
        Path("flow.py").write_text(text.replace('source("numbers"', 'source("others"'))
        flow.wait_until_told("states without an operator in the program: 'numbers'")
        assert {pid for *_, pid in flow.rows} == {first}, "the start would refuse the state of 'numbers'"
        Path("flow.py").write_text(text)
        Path("steps.py").write_text("def step(number:\n")
        flow.wait_until_told("was not reloaded; the run before this change continues", 2)
        assert "steps.py:1]" in flow.told
        lines = len(flow.rows)
        wait_until(lambda: len(flow.rows) > lines + 20)
        assert {pid for *_, pid in flow.rows} == {first}, "the old run continues"

        Path("steps.py").unlink()
        flow.wait_until_told("was not reloaded", 3)
        Path("steps.py").mkdir()
        edit("two", "steps.py/__init__.py")  # a folder of this name that is not the module
        time.sleep(1.2)
        assert {pid for *_, pid in flow.rows} == {first}
        Path("steps.py/__init__.py").unlink()
        Path("steps.py").rmdir()

        Path("hold").touch()
        edit("two")
        time.sleep(0.3)
        edit("three")  # within a second
        flow.wait_until_told("stopped after tick")
        Path("steps.py").write_text("def step(number:\n")
        Path("hold").unlink()
        second = flow.wait_for("three")
        assert second != first
        flow.wait_until_told("was not reloaded; the run before this change continues", 4)
        assert flow.told.count("resumed flow") == 1, "once for both, and not for the broken one"
        wait_until(lambda: len(flow.rows) > 60)
        flow.process.send_signal(signal.SIGINT)
        assert flow.process.wait(60) == 0
        flow.check_exact()
    assert "neither the flow nor an option says where to keep state; --reload keeps it in .malflow" in flow.told
    assert "Traceback" not in flow.told
    assert kept_position() == len(flow.rows)


@only_nightly
def test_a_start_that_fails_and_one_of_the_same_second(script: Script) -> None:
    script(FLOW + SLOW_END)
    with reloading() as flow:
        flow.wait_for("one")
        half = "import os\nif os.path.exists('checked'): raise OSError('half')\nopen('checked', 'w')\n"
        Path("steps.py").write_text(f"{half}def step(number):\n    return f'half {{number}}'\n")
        flow.wait_until_told("was not reloaded; the run before this change continues")
        edit("two")
        two = flow.wait_for("two")
        second = Path("steps.py").stat().st_mtime_ns // 10**9
        edit("six")  # of the size of the module that runs
        os.utime("steps.py", ns=(second * 10**9 + 1, second * 10**9 + 1))
        flow.wait_for("six")
        flow.process.send_signal(signal.SIGINT)
        assert flow.process.wait(60) == 0
        flow.check_exact()
    assert [*dict.fromkeys(word for word, *_ in flow.rows)] == ["one", "two", "six"]
    assert {pid for word, _, pid in flow.rows if word == "two"} == {two}


@pytest.mark.fault("T9")
@only_nightly
def test_a_signal_while_the_new_run_waits(script: Script) -> None:
    script(FLOW + SLOW_END)
    with reloading() as flow:
        old = flow.wait_for("one")
        Path("hold").touch()
        edit("two")
        flow.wait_until_told("stopped after tick")
        new, *_ = [it for it in _children_of(flow.process.pid) if it != old]
        flow.process.send_signal(signal.SIGINT)
        wait_until(lambda: _is_zombie(new))
        Path("hold").unlink()
        assert flow.process.wait(60) == 0
        assert {word for word, *_ in flow.rows} == {"one"}
    assert "Traceback" not in flow.told


def _children_of(parent: int) -> list[int]:
    return [*map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]


@pytest.mark.fault("T8")
@pytest.mark.slow
@pytest.mark.nightly
def test_children_that_end_by_themselves(script: Script) -> None:
    script(FLOW)
    with reloading("--persistence", "states", "--snapshots", "500ms", "--restore", "none") as flow:
        first = flow.wait_for("one")
        wait_until(lambda: Path("states").exists() and len(flow.rows) > 150)
        os.kill(first, signal.SIGKILL)
        flow.wait_until_told("flow.py was ended by signal 9; it starts again once a module changes")
        before = len(flow.rows)
        edit("two")
        flow.wait_for("two", before)
        wait_until(lambda: len(flow.rows) > before + 20)
        Path("finish").touch()
        flow.wait_until_told("flow.py has ended; it starts again once a module changes")
        flow.process.send_signal(signal.SIGTERM)
        assert flow.process.wait(60) == 0
    assert not Path(".malflow").exists()


@pytest.mark.fault("T8")
@pytest.mark.slow
def test_the_death_of_the_parent_stops_the_run(script: Script) -> None:
    script(FLOW)
    with reloading() as flow:
        child = flow.wait_for("one")
        flow.process.kill()
        flow.process.wait()
        flow.wait_until_told("stopped after tick")
        wait_until(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child))
    assert kept_position() == len(flow.rows)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.fault("T9")
@pytest.mark.slow
@pytest.mark.nightly
def test_ctrl_c_in_a_terminal_takes_one_snapshot(script: Script) -> None:
    script(FLOW)
    edit("one")
    with terminal("run", "flow.py", "--reload", "--live") as shell:
        shell.read_until("one 5 ")
        edit("two")
        shell.read_until("steps.py changed")
        shell.read_until("two ")
        shell.send("\x03")
        assert shell.read_all() == 0
        assert len(re.findall(r"stopped after tick .*: snapshot", shell.text)) == 2, "one for the edit, one for the end"
    assert "Traceback" not in shell.text


@only_nightly
def test_a_first_start_that_fails(script: Script) -> None:
    script(FLOW)
    with reloading("--tap", "stepp") as flow:
        assert flow.process.wait(60) == 2
        assert "did you mean 'step'" in flow.told
    edit("one")
    command = [sys.executable, "-m", "malflow", "run", "flow.py", "--reload"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()) as piped:
        assert piped.stdout is not None
        assert piped.stdout.readline().startswith(b"one 1 ")
        piped.stdout.close()
        assert piped.wait(60) == 141, "as without --reload"
    shutil.rmtree(".malflow")
    with reloading() as flow:
        Path("steps.py").write_text("raise RuntimeError('not yet')\n")
        flow.wait_until_told("it starts again once a module changes")
        edit("one")
        flow.wait_for("one")
        flow.process.send_signal(signal.SIGINT)
        assert flow.process.wait(60) == 0
        flow.check_exact()


def test_modules_below_a_folder(tmp_path: Path) -> None:
    for name in ("flow.py", "a/b/c.py", "malflow.toml", ".git/x.py", "venv/pyvenv.cfg", "venv/lib.py", "data.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.py").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    before = modules_in(tmp_path)
    assert sorted(os.path.relpath(it, tmp_path) for it in before) == ["a/b/c.py", "flow.py", "malflow.toml"]
    (tmp_path / "a/b/c.py").write_text("22")
    (tmp_path / "flow.py").unlink()
    (tmp_path / "flow.py").mkdir()
    (tmp_path / "new.py").touch()
    assert changed_names(before, modules_in(tmp_path)) == ["c.py", "flow.py", "new.py"]
    assert modules_in(tmp_path / "nowhere") == {}


def test_words_of_a_command() -> None:
    words = ["--reload", "-v", "--tap", "a", "flow.py", "--tap=b", "--set", "run.job=x", "--restore", "none", "--"]
    given = given_to(click.Context(run), [*words, "--reload", "x y"])
    child = given.words(None, frozenset({"reload"}))
    assert child[-4:] == ["flow.py", "--", "--reload", "x y"]
    assert sorted(child[:-4]) == sorted(
        ["--verbose", "--tap", "a", "--tap", "b", "--set", "run.job=x", "--restore", "none"]
    )
    plan = given.words(frozenset({"overrides", "verbose"}), frozenset())
    assert sorted(plan[:-4]) == ["--set", "--verbose", "run.job=x"]
