"""The commands of the README."""

from __future__ import annotations

import re

from tests.cli.conftest import Malflow, Script
from tests.test_readme import README, programs


def test_first_minutes_of_the_readme(script: Script, malflow: Malflow) -> None:
    text = README.read_text(encoding="utf-8")
    flow = script(programs(README)[0].text, head="")
    commands = re.findall(r"^malflow (.*?)(?: {2,}# (.*))?$", text, re.MULTILINE)
    assert [command.split()[0] for command, _ in commands[:3]] == ["run", "state", "check"]
    for command, comment in commands:
        done = malflow(*command.split())
        assert done.code == 0, done.err
        assert command.split()[0] != "state" or done.out == f"{comment}\n"
    assert flow.exists()
