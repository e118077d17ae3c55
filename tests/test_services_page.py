"""The unit, the crontab and the command for containers in docs/services.md do what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from malflow.cli.output.exits import Exit
from malflow.sources import CronSource
from tests.test_readme import BLOCK, ROOT

BLOCKS = dict(BLOCK.findall((ROOT / "docs" / "services.md").read_text(encoding="utf-8")))
UNIT = dict(re.findall(r"^(\w+)=(.*)$", BLOCKS["ini"], re.MULTILINE))
SYSTEMD = shutil.which("systemd-analyze") or ""
MALFLOW = [sys.executable, "-m", "malflow"]
pytestmark = pytest.mark.slow

FLOW = """
import time

from malflow import SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource, TextFileSource


def endless():
    while True:
        time.sleep(0.01)
        yield "word"


def build_dataflow(provider):
    provider.new_stream().source("words", {source}).sink("out", VecSink())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("MALFLOW_PROFILE", raising=False)
    return tmp_path


def arguments(command: str) -> list[str]:
    """Return what follows `malflow`, or the name of an image, in a command."""
    words = shlex.split(command.replace("\\\n", " "))
    return words[words.index("run", 2 if words[0] == "docker" else 0) :]


def test_unit_stops_with_a_snapshot_and_exit_code_zero(folder: Path) -> None:
    (folder / "flow.py").write_text(FLOW.replace("{source}", "SingleIteratorSource(endless())"))
    command = [it.replace("/var/lib/orders", "state") for it in arguments(UNIT["ExecStart"])]
    with subprocess.Popen([*MALFLOW, *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        deadline = time.monotonic() + 60
        while not (folder / "state").exists() and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        run.send_signal(signal.SIGTERM)
        _, said = run.communicate(timeout=60)
    assert run.returncode == Exit.DONE, said
    assert any((folder / "state").rglob("*"))


def test_unit_restarts_after_no_code_that_needs_a_change() -> None:
    codes = {Exit(int(code)) for code in UNIT["RestartPreventExitStatus"].split()}
    assert codes == {Exit.USAGE, Exit.FLOW, Exit.CONFIGURATION, Exit.OPERATOR, Exit.FENCED, Exit.MISSING}


@pytest.mark.skipif(not SYSTEMD, reason="needs systemd")
def test_unit_is_well_formed(folder: Path) -> None:
    unit = folder / "orders.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", BLOCKS["ini"], flags=re.MULTILINE))
    done = subprocess.run([SYSTEMD, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert "orders.service:" not in done.stderr


@pytest.mark.skipif(not shutil.which("flock"), reason="needs flock")
def test_line_of_the_crontab_runs_again_and_again(folder: Path) -> None:
    (folder / "flow.py").write_text(FLOW.replace("{source}", 'TextFileSource("words.txt")'))
    (folder / "words.txt").write_text("to\n")
    minute, hour, day, month, weekday, command = BLOCKS["text"].strip().split(maxsplit=5)
    assert CronSource(f"{minute} {hour} {day} {month} {weekday}")
    python = f"{shlex.quote(sys.executable)} -m malflow"
    command = command.replace("/srv/orders", ".").replace(".venv/bin/malflow", python)
    for _ in range(2):
        done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (Exit.DONE, "", "")
    assert (folder / "state").exists()


def test_command_in_the_container_is_understood(folder: Path) -> None:
    command = [*MALFLOW, *arguments(BLOCKS["sh"])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.FLOW, "there is no flow here, and nothing else is wrong"
