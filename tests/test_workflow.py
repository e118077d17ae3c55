"""The workflow of GitHub Actions keeps to its schema, calls the Makefile only, and tries each promised Python."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"
TARGET = re.compile(r"make ([a-z]+)")


def jobs() -> dict[str, Any]:
    return dict(yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"])


def keeps_to_the_schema(workflow: Path) -> tuple[bool, str]:
    schema = ["--builtin-schema", "vendor.github-workflows"]
    command = [sys.executable, "-m", "check_jsonschema", *schema, str(workflow)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_workflow_keeps_to_the_schema(tmp_path: Path) -> None:
    assert keeps_to_the_schema(WORKFLOW) == (True, "ok -- validation done\n")
    wrong = tmp_path / "tests.yml"
    wrong.write_text(WORKFLOW.read_text(encoding="utf-8").replace("timeout-minutes", "timeout"), encoding="utf-8")
    fine, said = keeps_to_the_schema(wrong)
    assert not fine
    assert "jobs" in said


def test_each_command_is_a_target_of_the_makefile() -> None:
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", rules, re.MULTILINE))
    commands = [step["run"] for job in jobs().values() for step in job["steps"] if "run" in step]
    assert commands
    for command in commands:
        found = TARGET.fullmatch(command)
        assert found, command
        assert found[1] in targets


def test_quick_tests_run_on_each_python_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = [it.rpartition(" ")[2] for it in project["classifiers"] if re.search(r":: 3\.\d+$", it)]
    assert jobs()["quick"]["strategy"]["matrix"]["python"] == promised
    assert project["requires-python"] == f">={promised[0]}"
