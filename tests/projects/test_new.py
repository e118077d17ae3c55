"""`malflow new`: names, folders that are in use, and the files of a project."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from malflow.cli.commands.new import TEMPLATES, checked_name, project_files
from malflow.cli.output.exits import CommandError
from tests.cli.conftest import Malflow
from tests.projects.conftest import Make

ROOT = Path(__file__).parents[2]


def flow_of(template: str) -> str:
    """Return the file of the dataflow of a template."""
    return TEMPLATES[template].flow


@pytest.mark.parametrize("template", TEMPLATES)
def test_files_of_a_project(template: str, project: Make, malflow: Malflow) -> None:
    folder = project(template)
    texts = {str(it.relative_to(folder)): it.read_text() for it in folder.rglob("*") if it.is_file()}
    done = malflow("new", folder.parent / "again", "--template", template, "--json")
    document = json.loads(done.out)
    assert sorted(texts) == document["files"]
    assert (document["name"], document["template"], done.err) == ("again", template, "")
    for path, text in texts.items():
        assert not re.search("@[a-z_ ]+@", text), path
        assert not re.search(r"\n\n\n\n|[ \t]\n|\n\n$", text), path
        if path.endswith((".yaml", ".yml")):
            assert all(map(bool, yaml.safe_load_all(text))), path
    assert tomllib.loads(texts["malflow.toml"])["run"]["job"] == "hello"
    assert set(re.findall(r"`([\w./]+)`(?:, )?", texts["README.md"])) >= {
        flow_of(template),
        f"test_{Path(flow_of(template)).stem}.py",
        ".env",
    }


@pytest.mark.parametrize("template", TEMPLATES)
def test_programs_of_a_project_have_no_lint(template: str, project: Make) -> None:
    folder = project(template)
    for command in (["check", "--select=E,W,F,I,N,UP,B,C4,SIM,RUF,PL,DTZ,PTH,ANN001,ANN201"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length=120", str(folder)]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.fault("R5")
def test_secrets_of_a_project(project: Make) -> None:
    folder = project()
    env = folder / ".env"
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    secrets = dict(line.split("=") for line in env.read_text().splitlines()[1:])
    assert len(secrets["MALFLOW_SIGNING_KEY"]) == 64
    for path in folder.rglob("*"):
        assert path == env or not path.is_file() or not any(it in path.read_text() for it in secrets.values())
    assert ".env" in (folder / ".gitignore").read_text().splitlines()
    assert project_files("hello", "minimal")[".env"] != env.read_text()


@pytest.mark.parametrize("name", ["A_b", "3", "-x", "x-", "naïve", "a b", "x" * 51, "a/../..", "a\nb", "<b>"])
@pytest.mark.fault("R1")
def test_name_that_cannot_be(name: str, tmp_path: Path, malflow: Malflow) -> None:
    done = malflow("new", tmp_path / "folder", "--name", name)
    assert (done.code, (tmp_path / "folder").exists()) == (2, False)
    assert "can't be the name of a project" in done.err


def test_near_name_is_proposed(tmp_path: Path, malflow: Malflow) -> None:
    done = malflow("new", tmp_path / "My_Flow")
    assert "such as my-flow; --name chooses" in done.err
    assert not [*tmp_path.glob("My*")]
    assert malflow("new", tmp_path / "My_Flow", "--name", "my-flow").code == 0


@given(st.text())
def test_accepted_names_are_labels_of_kubernetes(name: str) -> None:
    label = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
    try:
        checked_name(name)
    except CommandError as error:
        proposed = re.search("such as (.*); --name", str(error))
        assert proposed is None or checked_name(proposed[1])
    else:
        assert label.fullmatch(name)


@pytest.mark.fault("R1")
def test_folder_that_is_in_use(tmp_path: Path, malflow: Malflow) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / ".hidden").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for place in ("used", "file", "file/below"):
        done = malflow("new", tmp_path / place)
        assert done.code == 2
        assert done.err.startswith("error: ")
    assert [it.name for it in (tmp_path / "used").iterdir()] == [".hidden"]
    assert (tmp_path / "file").read_text() == "mine"


def test_folder_that_is_empty(tmp_path: Path, malflow: Malflow, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    done = malflow("new", ".")
    assert (done.code, done.err.splitlines()[-1]) == (0, "run it: malflow run flow.py")
    assert tomllib.loads(Path("malflow.toml").read_text())["run"]["job"] == "here"


@pytest.mark.parametrize("template", TEMPLATES)
def test_settings_of_a_project_are_accepted(
    template: str, project: Make, malflow: Malflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(template)
    for line in (folder / ".env").read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            monkeypatch.setenv(name, value)
    for profile in ([], ["--profile", "prod"]):
        done = malflow("config", "check", flow_of(template), *profile)
        assert done.code == 0, done.err
        assert "no mistakes" in done.out + done.err
        assert "is not a variable of malflow" not in done.err
        assert "warning" not in done.err


@pytest.mark.slow
def test_wheel_has_the_scaffold(tmp_path: Path) -> None:
    built = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}  # pip has warnings of its own
    done = subprocess.run(built, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "wheel", "zip")
    ours = {it.relative_to(ROOT) for it in (ROOT / "malflow" / "cli" / "scaffold").rglob("*") if it.is_file()}
    assert ours
    assert all((tmp_path / "wheel" / it).is_file() for it in ours)
