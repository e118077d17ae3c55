"""Every example and every program of the README under the commands, each a process of its own.

A few of them always; all of them with ``HYPOTHESIS_PROFILE=nightly``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Done, environment, process
from tests.kit.nights import only_nightly
from tests.test_readme import README, programs

pytestmark = pytest.mark.nightly

EXAMPLES = ROOT / "examples"
NEED_SERVERS = {
    "billed_orders",
    "busy_towns",
    "enriched_orders",
    "hourly_delays",
    "kafka_totals",
    "on_spark",
    "postgres_totals",
    "redis_totals",
}
VARYING = {"flight_delays_crash", "rescaling", "snapshots_failing"}
"""Examples whose numbers depend on time."""

USUAL = {"first", "ttl_map_example"}
WITHOUT_RUN = {"exactly_once_testing", "tests"}
"""Programs that call neither `execute` nor `start`, and do not say which function builds the dataflow."""

SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in NEED_SERVERS)
PROGRAMS = [it.text for it in programs(README) if not it.needs_spark and not it.needs_s3]
COMMANDS = ["run", "check", "plan", *(["graph"] if find_spec("malflow.drawing") else [])]


def masked(text: str, name: str) -> list[str]:
    """Return the lines in some order, without names of temporary folders, and without numbers where these vary."""
    text = re.sub(r"/\S*/(file-sink|malflow)-\w+", "FOLDER", text)
    if name in VARYING:
        text = re.sub(r"[\d,]+", "N", text)
        return sorted(set(text.splitlines()))
    return sorted(text.splitlines())


def under_python(script: Path, folder: Path) -> Done:
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env={**environment(), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def check_script(script: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[str]) -> None:
    folders = [tmp_path / it for it in ("python", *commands)]
    for folder in folders:
        folder.mkdir()
        (folder / "tale.txt").write_text("once upon a time\nonce more\n", encoding="utf-8")
    expected = under_python(script, folders[0])
    assert expected.code == 0, expected.err
    for command, folder in zip(commands, folders[1:], strict=True):
        monkeypatch.setenv("TMPDIR", str(folder))
        done = process(command, script, cwd=folder, wait=120)
        assert "Traceback" not in done.err
        if name in WITHOUT_RUN:
            assert (done.code, "calls neither execute() nor start()" in done.err) == (3, True)
        elif command == "run":
            assert (done.code, masked(done.out, name)) == (0, masked(expected.out, name)), done.err
            assert re.search(r"^(running|resumed) ", done.err, re.MULTILINE)
        else:
            assert done.code in ((0, 10) if command == "check" else (0,)), done.err
            assert done.out or (name, command) == ("basic_noop", "graph")


@pytest.mark.parametrize("name", [it if it in USUAL else pytest.param(it, marks=only_nightly) for it in SCRIPTS])
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = ["run", "plan"] if name in USUAL else COMMANDS
    check_script(EXAMPLES / f"{name}.py", name, tmp_path, monkeypatch, commands)


@pytest.mark.parametrize(
    "number", [it if it == 0 else pytest.param(it, marks=only_nightly) for it in range(len(PROGRAMS))]
)
def test_program_of_the_readme(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PROGRAMS[number]
    script = tmp_path / "flow.py"
    script.write_text(text, encoding="utf-8")
    name = "readme" if ".execute()" in text else "tests"
    check_script(script, name, tmp_path, monkeypatch, ["run", "check", "plan"])
