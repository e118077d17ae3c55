"""Commands as processes of their own: signals, pipes and imports."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Script, environment, process
from tests.kit.interrupts import heed_signals

pytestmark = pytest.mark.slow

NUMBERS = """
from itertools import count
import time

def numbers():
    for number in count():
        time.sleep(0.001)
        yield number

def build_dataflow(provider):
    stream = provider.new_stream().source("numbers", SingleIteratorSource(numbers()))
    stream.sink("out", StdOutSink(formatter=lambda msg: msg.value))

"""
"""The beginning of a script that runs for ever."""

ENDLESS = {
    "execute": "SingleThreadRuntime(build_dataflow).execute()\nprint('after')",
    "start": "SingleThreadRuntime(build_dataflow).start().await_termination()\nprint('after')",
    "a thread": """
import threading
threading.Thread(target=SingleThreadRuntime(build_dataflow).execute).start()
""",
}


@contextmanager
def begun(*arguments: str, python: tuple[str, ...] = ("-m", "malflow")) -> Iterator[subprocess.Popen[str]]:
    """Start a command, and wait until it has written a line."""
    command = [sys.executable, *python, *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=heed_signals,  # noqa: PLW1509 - it only sets signals
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        try:
            yield running
        finally:
            running.kill()


@pytest.mark.parametrize(
    ("kind", "number"),
    [("execute", signal.SIGINT), ("execute", signal.SIGTERM), ("start", signal.SIGTERM), ("a thread", signal.SIGINT)],
)
def test_signal_stops_with_a_snapshot(kind: str, number: int, script: Script) -> None:
    flow = script(NUMBERS + ENDLESS[kind])
    with begun("run", str(flow), "--persistence", "kept") as running:
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert "flow stopped after tick" in err
    assert ". The same command continues from here." in err
    assert kind == "a thread" or out.endswith("after\n")


@pytest.mark.nightly
def test_signal_outside_a_run(script: Script) -> None:
    flow = script("import time\nprint('here', flush=True)\ntime.sleep(60)")
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)):
        with begun("run", str(flow)) as running:
            running.send_signal(number)
            _, err = running.communicate(timeout=60)
        assert running.returncode == code
        assert "Traceback" not in err


@pytest.mark.nightly
def test_second_signal_ends_a_run_that_does_not(script: Script) -> None:
    flow = script(NUMBERS.replace("time.sleep(0.001)", "time.sleep(print(1, flush=True) or 60)") + ENDLESS["start"])
    with begun("run", str(flow)) as running:
        while running.poll() is None:
            running.send_signal(signal.SIGINT)
            time.sleep(0.5)
    assert running.returncode in (130, -signal.SIGINT)  # a third one may come while Python ends


@pytest.mark.parametrize("text", [NUMBERS + ENDLESS["execute"], "while True:\n    print('x' * 1000)"])
@pytest.mark.nightly
def test_reader_that_goes(text: str, script: Script) -> None:
    with begun("run", str(script(text)), "-q") as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.wait(60) == 141
        assert running.stderr is not None
        assert running.stderr.read() == ""


@pytest.mark.nightly
def test_closed_standard_streams(script: Script) -> None:
    flow = script("import sys\nprint(sys.stdin and sys.stdin.read())\nSingleThreadRuntime(build_dataflow).execute()")
    for closed in ("<&-", "</dev/null", "2>&-"):
        command = f"{sys.executable} -m malflow run {flow} {closed}"
        done = subprocess.run(
            ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=60, env=environment()
        )
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (closed, done.stderr)


@pytest.mark.nightly
def test_a_megabyte_of_output(script: Script) -> None:
    done = process("run", script("print('x' * 1_000_000)\nSingleThreadRuntime(build_dataflow).execute()"), "-q")
    assert (done.code, len(done.out), done.err) == (0, 1_000_001 + len("a1\nb1\na2\n"), "")


def test_children_of_a_script_are_not_touched(script: Script) -> None:
    text = """
        import multiprocessing, os
        def work(number):
            SingleThreadRuntime(build_dataflow).execute()
        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                child = multiprocessing.get_context(method).Process(target=work, args=(1,))
                child.start()
                child.join()
            SingleThreadRuntime(build_dataflow).execute()
    """
    done = process("run", script(text))
    assert done.code == 0, done.err
    assert done.out.split() == ["a1", "b1", "a2"] * 3
    assert done.err.count("running flow") == 1


@pytest.mark.nightly
def test_run_that_ends_with_its_script(script: Script) -> None:
    done = process("run", script(NUMBERS + "SingleThreadRuntime(build_dataflow).start()"))
    assert done.code == 0
    assert "Traceback" not in done.err


def test_user_frames_only_under_python(script: Script) -> None:
    text = """
        def half(number):
            return 1 / number
        def build_dataflow(provider):
            provider.new_stream().source("n", SingleIteratorSource([0])).map("half", half)
        SingleThreadRuntime(build_dataflow).{}
    """
    for call in ("execute()", "start().await_termination()"):
        flow = script(text.format(call))
        command = [sys.executable, str(flow)]
        written = subprocess.run(command, capture_output=True, text=True, check=False, env=environment()).stderr
        own = [line for line in written.splitlines() if "malflow/" in line and "errors." not in line]
        assert own == []
        assert 'flow.py", line 14, in half' in written
        assert "malflow.errors.OperatorError: operator 'half' failed" in written
    full = {**environment(), "MALFLOW_TRACEBACK": "full"}
    written = subprocess.run(command, capture_output=True, text=True, check=False, env=full).stderr
    assert written.count("malflow/") > 5


def test_help_imports_click_and_no_more() -> None:
    listed = "import sys; {}; print(*sys.modules)"
    run = "import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()): cli.main(['--help'])"
    modules = []
    for work in (
        "import malflow",
        "import malflow, malflow.cli as cli; exec(" + repr(run) + ")",
        "import click, shutil, textwrap",
        "from malflow import StreamProvider",
    ):
        command = [sys.executable, "-c", listed.format(work)]
        found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(), cwd=Path.cwd())
        modules.append({*found.stdout.split()})
    bare, helped, click, building = modules
    more = {it for it in helped - bare - click if not it.startswith("click.")}
    assert {it for it in more if it.split(".")[0] not in sys.stdlib_module_names} == {
        "malflow.cli",
        "malflow.cli.groups",
        "malflow.cli.output",
        "malflow.cli.output.exits",
        "malflow.cli.output.output",
        "malflow.store",
        "malflow.store.contract",
        "malflow.store.redaction",
    }
    assert not {it.split(".")[0] for it in helped} & {"rich", "fsspec", "asyncio", "http", "tomllib", "sqlite3"}
    assert not {it.split(".")[0] for it in building} & {"click", "rich", "asyncio", "http", "tomllib"}


def test_console_script_is_that_of_the_module() -> None:
    done = process("--version")
    assert (done.code, done.out.split()[:2]) == (0, ["malflow,", "version"])
