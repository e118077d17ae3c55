"""The first five minutes of the README, typed into a terminal."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.terminals import on_terminal
from tests.kit.nights import NIGHTLY
from tests.test_fresh_install import install, ran, users_environment
from tests.test_readme import README

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
SECONDS = 300
NUMBER = re.compile(r"\d+(,\d{3})*(\.\d+)?")


class Typed(NamedTuple):
    """A command of a transcript, with its printed output and its comment."""

    command: str
    prints: list[str]
    comment: str


def transcript() -> Iterator[Typed]:
    """Yield the commands of the README's only console block."""
    [block] = re.findall(r"^```console\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *prints = part.splitlines()
        typed, _, comment = command.partition(" # ")
        yield Typed(typed.strip(), prints, comment.strip())


def masked(line: str) -> str:
    """Return a line with 1 for each number, no units of time, and one word in place of the operator at fault."""
    line = re.sub(r"key '\w+', value '\w+'", "key 'word', value 'word'", line)
    return re.sub(r"1 m?s\b", "1 s", NUMBER.sub("1", line))


def check_screen(typed: Typed, screen: str) -> None:
    """Check that a screen has the transcript's lines in order; ``...`` stands for any lines."""
    lines, at = [masked(it) for it in screen.splitlines()], 0
    is_next = True
    for expected in typed.prints:
        if expected == "...":
            is_next = False
            continue
        assert masked(expected) in lines[at:], f"{expected}\nis not on the screen of `{typed.command}`:\n{screen}"
        found = lines.index(masked(expected), at)
        assert found == at or not is_next, f"{lines[at]}\nis not expected before\n{expected}\n{screen}"
        at, is_next = found + 1, True


class Shell(NamedTuple):
    """A folder, and the environment of the commands typed there."""

    folder: Path
    variables: dict[str, str]

    def type(self, command: str) -> tuple[int, str]:
        """Run a command, press Ctrl-C once a run has shown enough, and return the exit code and the screen."""
        with on_terminal(["bash", "-c", command], self.variables, folder=self.folder, columns=200) as shell:
            is_typed, deadline = False, time.monotonic() + SECONDS
            while shell.read():
                assert time.monotonic() < deadline, shell.text
                if not is_typed and shell.text.count("{ key:") > 15:
                    shell.send("\x03")
                    is_typed = True
            return shell.process.wait(SECONDS), shell.text.replace("\r\n", "\n").replace("^C", "^C\n")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell in an empty folder, with this malflow; nightly runs install it in a new environment."""
    programs = tmp_path / "bin"
    programs.mkdir()
    environment = {
        **users_environment(),
        "MALFLOW_CONTROL": "0",
        "BROWSER": "true",
        "MALFLOW_SERVE__ADDRESS": "127.0.0.1:0",
    }
    if NIGHTLY:
        ran([sys.executable, "-m", "venv", str(tmp_path / "environment")], tmp_path).check_returncode()
        python = tmp_path / "environment" / "bin" / "python"
        install(python, f"{ROOT}[serve,spark,testing]", "pytest")
        programs = python.parent
    else:
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        for name in ("malflow", "pytest"):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {name} "$@"\n')
            (programs / name).chmod(0o755)
    (tmp_path / "work").mkdir()
    environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return Shell(tmp_path / "work", {**environment, "TERM": "dumb"})


def test_first_minutes_of_the_readme(shell: Shell) -> None:
    for typed in transcript():
        if typed.command.startswith("pip ") or ("--on spark" in typed.command and not NIGHTLY):
            continue
        code = int(typed.comment.removeprefix("exit ")) if typed.comment.startswith("exit ") else 0
        found, screen = shell.type(typed.command)
        assert found == code, screen
        check_screen(typed, screen)
        if "&& cd hello" in typed.command:
            shell = shell._replace(folder=shell.folder / "hello")
