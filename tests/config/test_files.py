"""Which file is read, and on which line a setting is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.config import check, load, shown_settings
from malflow.config.files import KeyLines


def test_the_nearest_file_upwards_is_read_and_only_that(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "malflow.toml").write_text("[run]\nparallelism = 2\njob = 'outer'\n")
    assert load(below, env={}).run.parallelism == 2
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\nname = 'malflow'\n")
    assert load(below, env={}).run.parallelism == 2
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.malflow.run]\nparallelism = 3\n")
    settings = load(below, env={})
    assert (settings.run.parallelism, settings.run.job) == (3, "default")
    assert shown_settings(settings, defaults=False)[0].origin.endswith("pyproject.toml:2")
    (tmp_path / "a" / "malflow.toml").write_text("[run]\nparallelism = 4\n")
    assert load(below, env={}).run.parallelism == 4
    assert load(tmp_path / "malflow.toml", env={}).run.job == "outer"
    assert load(None, env={}).run.parallelism is None


def test_a_project_file_that_others_broke_is_left_to_them(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = malflow\n")
    assert check(tmp_path, env={}) == ()
    (tmp_path / "pyproject.toml").write_text("[project]\nname = x\n[tool.malflow.run]\n")
    [fault] = check(tmp_path, env={})
    assert str(fault).endswith("pyproject.toml:2: invalid value at column 8")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")
def test_a_file_of_another_user_in_a_folder_above_is_left_alone(tmp_path: Path) -> None:
    below = tmp_path / "mine"
    below.mkdir()
    file = tmp_path / "malflow.toml"
    file.write_text("[run]\nparallelism = 2\n")
    os.chown(file, 12345, 12345)
    settings = load(below, env={})
    assert settings.run.parallelism is None
    assert "belongs to another user" in settings.warnings[0]
    assert load(file, env={}).run.parallelism == 2


@pytest.mark.slow
def test_importing_reads_neither_files_nor_the_environment(tmp_path: Path) -> None:
    (tmp_path / "malflow.toml").write_text("broken")
    program = (
        "import sys; reads = []\n"
        "sys.addaudithook(lambda event, args: reads.append(args[0]) if event == 'open' else None)\n"
        "import malflow.config\n"
        "print([it for it in reads if str(it).endswith('.toml')])"
    )
    env = os.environ | {"MALFLOW_PROFILE": "gone", "MALFLOW_RUN__X": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


HARD = '''\
# [not.a.table]
[run] # [x]
  job = """
parallelism = 9
[spark]
"""
"parallelism" = 4
restore = 'latest' # persistence = 1
[ persistence . storage_options ]
"a.b" = [
  1, # ]
  "]",
]
c.d = { e = 1, f = [2] }
[[tool]]
[operators."x \\" ] y"]
url = "a\\"b = c"
'''


def test_lines_of_keys_in_a_hard_file() -> None:
    lines = KeyLines(HARD)
    wanted = {
        ("run",): 2,
        ("run", "job"): 3,
        ("run", "parallelism"): 7,
        ("run", "restore"): 8,
        ("persistence", "storage_options"): 9,
        ("persistence", "storage_options", "a.b"): 10,
        ("persistence", "storage_options", "c", "d", "e"): 14,
        ("operators", 'x " ] y'): 16,
        ("operators", 'x " ] y', "url"): 17,
        ("spark", "trigger"): None,
    }
    assert {path: lines[path] for path in wanted} == wanted


TEXTS = st.text(st.sampled_from("ab\"'\\[]{}=#\n\t .é$"), max_size=8)


@given(st.lists(st.tuples(TEXTS.filter(bool), TEXTS, st.booleans()), unique_by=lambda it: it[0], max_size=6))
def test_lines_of_random_keys_and_values(items: list[tuple[str, str, bool]]) -> None:
    text, wanted = "", {}
    for key, value, several in items:
        wanted[(key,)] = text.count("\n") + 1
        escaped = "".join(f"\\U{ord(it):08x}" if it in '"\\\n\t' else it for it in value)
        quoted = '"' + "".join(f"\\U{ord(it):08x}" if it in '"\\\n\t' else it for it in key) + '"'
        text += f'{quoted} = """\n{escaped}"""\n' if several else f'{quoted} = "{escaped}" # [x]\n'
    lines = KeyLines(text)
    assert {path: lines[path] for path in wanted} == wanted
