"""A configuration with faults: all of them at once, each with its place, and no secret in any."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from malflow import ConfigError
from malflow.config import check, faults_document, load

pytestmark = pytest.mark.fault("G13")


def faults(folder: Path, text: str | bytes, **env: str) -> list[str]:
    """Return the faults of a file, without its folder."""
    content = text.encode() if isinstance(text, str) else text
    (folder / "malflow.toml").write_bytes(content)
    return [str(fault).replace(f"{folder}{os.sep}", "") for fault in check(folder, env=env)]


EVERYTHING = """\
[run]
paralelism = 4
parallelism = "four"
snapshots = "10x"
sinks = ["exactly_once"]
job = "a/b"
persistence = { a = 1 }
trigger = "2s"
renamed = { a = "b" }

[persistence]
signing_key = "short"
retain = 0

[spark]
latency = "-1s"
conf = 3

[errors]
budget = { share = 2.0, window = "0s", at_least = true }
default = "ignore"
full = "drop"

[operators.orders]
url = "kafak://me:hush@broker/orders"
urll = "x"
retry = { attempts = 0, on = ["OSError", "NoError"] }

[opertors.x]
url = "y"
"""


def test_all_faults_at_once_with_their_lines(tmp_path: Path) -> None:
    found = faults(tmp_path, EVERYTHING)
    assert [it.partition(": ")[0] for it in found] == [
        f"malflow.toml:{line}"
        for line in (2, 3, 4, 5, 6, 7, 8, 9, 12, 12, 13, 16, 17, 20, 20, 20, 21, 22, 25, 25, 26, 27, 27, 29)
    ]
    assert "hush" not in "".join(found)
    assert "short" not in "".join(found)
    words = dict(it.removeprefix("malflow.toml:").split(": ", 1) for it in found)
    assert words["2"] == "run.paralelism is not a setting; did you mean 'parallelism'?"
    assert words["3"] == "run.parallelism needs an integer, or none; got 'four'"
    assert words["4"] == "run.snapshots needs a time such as 500ms, 30s, 5m, 2h, 1d, or none; got '10x'"
    assert words["5"] == "run.sinks needs 'exactly_once' or 'accept_duplicates'; got ['exactly_once']"
    assert words["7"] == "run.persistence needs a text, or none; got a table"
    assert words["8"] == "run.trigger is not a setting; did you mean spark.trigger?"
    assert words["9"] == "run.renamed is for one start: pass it to the command or the runtime"
    assert words["12"].startswith("persistence.signing_key: signing key 1 has 5 bytes; it needs at least 16")
    assert words["17"] == "spark.conf needs a table; got 3"
    assert words["25"].startswith("operators.orders.url: connect('kafak://***@broker/orders'): no connector for scheme")
    assert words["25"].split("; ")[1] == "did you mean 'kafka'?"
    assert words["29"] == "opertors is not a setting; did you mean 'operators'?"


def test_the_error_has_all_faults_and_the_first_key(tmp_path: Path) -> None:
    (tmp_path / "malflow.toml").write_text("[run]\nparalelism = 4\njbo = 'x'\n")
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, env={})
    error = pickle.loads(pickle.dumps(refused.value))
    assert str(error).splitlines()[0] == "2 faults:"
    assert (error.key, len(error.faults)) == ("run.paralelism", 2)
    assert error.origin.endswith("malflow.toml:2")
    assert faults_document(error.faults)["faults"][1]["key"] == "run.jbo"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"[run]\njob = 'a", 'malflow.toml: expected "\'" at the end of the file, which may be cut short'),
        (b"[run]\njob = [1,", "malflow.toml: invalid value at the end of the file, which may be cut short"),
        (b"[run]\njob = a\n", "malflow.toml:2: invalid value at column 7"),
        (b"[run]\n[run]\n", "malflow.toml:2: cannot declare ('run',) twice at column 5"),
        (b"[run]\n\x00\n", "malflow.toml:2: invalid statement at column 1"),
        (b"\x7fELF\xff\xfe", "malflow.toml:1: the file is not text in UTF-8 at column 5"),
        (b"#" * 10_000_000, "malflow.toml: the file is larger than 1 MB"),
        (b"a = " + b"[" * 100_000, "malflow.toml: the file has too many brackets within each other"),
        (b"run = 4", "malflow.toml:1: run needs a table; got 4"),
        (b"profile = 4", "malflow.toml:1: profile needs a table for each profile: [profile.NAME.run]"),
    ],
    ids=[
        "cut in text",
        "cut in list",
        "no value",
        "twice",
        "zero",
        "binary",
        "10 MB",
        "deep",
        "no table",
        "no profiles",
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, content: bytes, fault: str) -> None:
    assert faults(tmp_path, content) == [fault]


def test_every_beginning_of_a_file_is_read_or_refused(tmp_path: Path) -> None:
    text = (
        '[run]\njob = "é"\nparallelism = 4\n[persistence]\nretain = """7d"""\n[operators."a b"]\noptions = { x = 1 }\n'
    )
    for length in range(len(text.encode())):
        for fault in faults(tmp_path, text.encode()[:length]):
            assert fault.startswith("malflow.toml")
            assert "\n" not in fault


def test_a_missing_file_and_one_that_is_no_file(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "gone.toml", "No such file or directory"), (tmp_path / "socket", "No such device")):
        if path.name == "socket":
            with socket.socket(socket.AF_UNIX) as opened:
                opened.bind(str(path))
        [fault] = check(path, env={})
        assert "the file can't be read" in fault.reason
        assert words in fault.reason
    assert check(tmp_path, env={}) == ()


@pytest.mark.parametrize(
    ("env", "overrides", "fault"),
    [
        ({"MALFLOW_PROFILE": "prdo"}, {}, "MALFLOW_PROFILE: there is no profile 'prdo'; did you mean 'prod'?"),
        ({"MALFLOW_PROFILE": "x"}, {}, "MALFLOW_PROFILE: there is no profile 'x'; malflow.toml has 'prod'"),
        ({"MALFLOW_RUN__JOBS": "x"}, {}, "MALFLOW_RUN__JOBS: run.jobs is not a setting; did you mean 'job'?"),
        ({"MALFLOW_RUN__RENAMED__A": "b"}, {}, "MALFLOW_RUN__RENAMED__A: run.renamed is for one start"),
        ({"MALFLOW_RUN__SNAPSHOTS": "soon"}, {}, "MALFLOW_RUN__SNAPSHOTS: run.snapshots needs a time such as"),
        ({"MALFLOW_RUN__PARALLELISM": ""}, {}, "MALFLOW_RUN__PARALLELISM: run.parallelism needs an integer, or none"),
        ({"MALFLOW_SERVE__CONTROL": "maybe"}, {}, "MALFLOW_SERVE__CONTROL: serve.control needs true or false"),
        ({}, {"run.parallelism": 0}, "--set run.parallelism: run.parallelism: a run's parallelism must be a whole"),
        ({}, {"run..job": "x"}, "--set run..job: a setting is written table.name, such as run.parallelism"),
        ({}, {"": "x"}, "--set : a setting is written table.name"),
        ({}, {"run": "x"}, "--set run: run needs a table; got 'x'"),
        ({}, {"operators.a": "x"}, "--set operators.a: operators.a needs a table; got 'x'"),
        ({}, {"job": "x"}, "--set job: job is not a setting; did you mean run.job?"),
        (
            {},
            {"run.parallelism.x": 3},
            "--set run.parallelism.x: run.parallelism needs an integer, or none; got a table",
        ),
        ({}, {"run.parallelism": [4]}, "--set run.parallelism: run.parallelism needs an integer, or none; got [4]"),
        ({}, {"run.parallelism": True}, "--set run.parallelism: run.parallelism needs an integer, or none; got true"),
        ({}, {"errors.keep_bytes": "9" * 400}, "--set errors.keep_bytes: errors.keep_bytes needs a number of bytes"),
    ],
)
def test_faults_of_variables_and_overrides(
    tmp_path: Path, env: Mapping[str, str], overrides: Mapping[str, object], fault: str
) -> None:
    (tmp_path / "malflow.toml").write_text("[profile.prod.run]\nparallelism = 2\n")
    found = [str(it).replace(f"{tmp_path}{os.sep}", "") for it in check(tmp_path, env=env, overrides=overrides)]
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_faults_of_hostile_names_and_values_are_short_lines(tmp_path: Path) -> None:
    text = '[run]\n"\\u001b[31m\\nx" = 1\nparallelism = 0x' + "f" * 9_000 + "\nsnapshots = '" + "9" * 9_000 + "'\n"
    text += "[operators.'a\u202eb'.options]\nx = [0x1]\ny = 0x" + "f" * 9_000 + "\n"
    found = faults(tmp_path, text)
    assert found[0].startswith(r'malflow.toml:2: run."\u001b[31m\u000ax" is not a setting; ')
    assert found[1] == "malflow.toml:3: run.parallelism needs a number of at most 64 bits"
    assert found[2].startswith("malflow.toml:4: run.snapshots needs a time")
    assert found[3] == r'malflow.toml:7: operators."a\u202eb".options.y needs a number of at most 64 bits'
    assert max(map(len, found)) < 500
    assert all(it.isprintable() for it in found)
    given = load(None, env={"MALFLOW_\udcff\x1b": "x"}).warnings
    assert given == (r"MALFLOW_\udcff\x1b: is not a variable of malflow",)


def test_profiles_that_are_not_chosen_are_checked_without_their_variables(tmp_path: Path) -> None:
    text = '[profile.prod.run]\npersistence = "${MISSING}"\nparalelism = 2\n'
    text += '[profile.prod.serve]\ntoken = { file = "no" }\n'
    assert faults(tmp_path, text) == [
        "malflow.toml:3 [profile.prod]: run.paralelism is not a setting; did you mean 'parallelism'?"
    ]
    assert len(faults(tmp_path, text, MALFLOW_PROFILE="prod")) == 3


def test_variables_that_are_unknown_are_warned_of() -> None:
    settings = load(None, env={"MALFLOW_SINGING_KEY": "hush", "MALFLOW_SIGNING_KEY": "k" * 16, "MALFLOW_Q": "x"})
    assert settings.warnings == (
        "MALFLOW_Q: is not a variable of malflow",
        "MALFLOW_SINGING_KEY: is not a variable of malflow; did you mean MALFLOW_SIGNING_KEY?",
    )
