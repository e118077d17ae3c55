"""Where secrets come from, and that nothing shows them."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from malflow.config import Settings, check, load, settings_document, settings_text, shown_settings, toml_text
from malflow.store.references import Secret


def loaded(folder: Path, text: str, **env: str) -> Settings:
    (folder / "malflow.toml").write_text(text)
    return load(folder, env=env)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("x${A}y${B:-two}", "xoney" + "two"),
        ("${A:-two}", "one"),
        ("${EMPTY}", ""),
        ("${EMPTY:-two}", "two"),
        ("${B:-}", ""),
        ("$$", "$"),
        ("$${A}", "${A}"),
        ("$$${A}", "$one"),
        ("$A $", "$A $"),
        ("${NESTED}", "${A} $$"),
    ],
)
def test_variables_in_a_file(tmp_path: Path, text: str, value: str) -> None:
    options = f"[persistence.storage_options]\nplain = '{text}'\nlist = ['{text}']\n"
    found = loaded(tmp_path, options, A="one", EMPTY="", NESTED="${A} $$").persistence.storage_options
    assert found == {"plain": value, "list": [value]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${GONE}", "needs the variable GONE, which is not set; set it, or write ${GONE:-default}"),
        ("${A", "has a malformed '${'"),
        ("${a-b}", "has a malformed '${'"),
        ("${A:-${B}}", "has a malformed '${'"),
        ("${}", "has a malformed '${'"),
    ],
)
def test_a_malformed_reference_names_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "malflow.toml").write_text(f"[run]\n\njob = '{text}'\n")
    [fault] = check(tmp_path, env={"A": "hush"})
    assert fault.key == "run.job"
    assert str(fault.origin).endswith("malflow.toml:3")
    assert fault.reason.startswith(f"run.job {words}")
    assert "hush" not in str(fault)


def test_only_files_refer_to_variables() -> None:
    settings = load(None, env={"MALFLOW_SPARK__NAME": "${A}", "A": "x"}, overrides={"spark.scratch": "${A}$$"})
    assert (settings.spark.name, settings.spark.scratch) == ("${A}", "${A}$$")


def test_a_secret_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k" * 16 + "\n")
    text = '[persistence]\nsigning_key = { file = "${NAME}" }\nstorage_options.secret = { file = "key" }\n'
    settings = loaded(tmp_path, text, NAME="key")
    assert settings.persistence.signing_key == "k" * 16
    assert settings.persistence.storage_options == {"secret": "k" * 16}
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "can't be read: No such file"), (b"x" * 65_537, "at most 64 kB"), (b"\xff", "needs text in UTF-8")],
)
def test_a_file_that_has_no_secret(tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    (tmp_path / "malflow.toml").write_text('[serve]\ntoken = { file = "key" }\n')
    [fault] = check(tmp_path, env={})
    assert fault.key == "serve.token"
    assert words in fault.reason


WRITTEN = """\
[serve]
token = "hush-a"
[run]
persistence = "s3://me:hush-b@host/x"
[persistence]
storage_options = { secret = "hush-c", nested = { passwords = ["hush-d"] } }
[operators.auth]
url = "sqlite:///x?password=hush-e"
[profile.prod.serve]
token = "hush-f"
"""
PUBLIC = """\
[run]
job = "hush"
[serve]
token = "${TOKEN:-hush}"
metrics_token = false
[operators.keys]
url = "postgres://me@host/db?table=t&key=id"
options = { key = "id", wait = "5s" }
"""


def test_secrets_that_are_written_in_a_file_are_faults(tmp_path: Path) -> None:
    (tmp_path / "malflow.toml").write_text(WRITTEN)
    found = check(tmp_path, env={})
    lines = [str(it.origin).partition("malflow.toml:")[2].partition(" ")[0] for it in found]
    assert lines == ["2", "4", "6", "6", "8", "10"]
    assert all('has a secret that is written in the file; write "${NAME}" or {' in it.reason for it in found)
    assert "hush" not in "".join(map(str, found))


def test_names_of_columns_users_and_defaults_are_not_written_secrets(tmp_path: Path) -> None:
    settings = loaded(tmp_path, PUBLIC)
    assert "hush" not in repr(settings.serve)
    assert "operators.keys.options.key  'id'" in " ".join(map(str, shown_settings(settings)))


EVERYWHERE = """\
[run]
persistence = "s3://me:${A}@host/x"
job = "${JOB}"
[persistence]
signing_key = "${KEY}"
storage_options = { secret = "${C}", nested = { token = "${D}", deep = { password = ["${E}"] } } }
[spark]
conf = { "spark.hadoop.fs.s3a.secret.key" = "${F}" }
scratch = "${MY_SECRET}/x"
name = { file = "secret" }
[serve]
token = "${H}"
[operators.orders]
url = "kafka://me:${I}@broker/orders?ssl_password=${J}"
options = { password = "${K}", wait = "${ANY_TOKEN}s" }
"""


PLAIN = {name: f"hush-{name.lower()}" for name in "ACDEFHIJK"}
"""Variables whose names don't say that they are secrets."""


def test_nothing_shows_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "secret").write_text("hush-g")
    env = PLAIN | {"JOB": "orders", "KEY": "hush-b" + "x" * 16, "MY_SECRET": "hush-l", "ANY_TOKEN": "hush-m"}
    with caplog.at_level(logging.DEBUG):
        settings = loaded(tmp_path, EVERYWHERE, **env)
    shown: list[Any] = [repr(settings), settings_text(settings), toml_text(settings), caplog.text, *settings.warnings]
    shown += [json.dumps(settings_document(settings)), shown_settings(settings), repr(settings.operators)]
    shown += [getattr(settings, name) for name in ("run", "persistence", "spark", "serve")]
    assert "hush" not in "".join(map(repr, shown))
    assert "orders" in repr(settings)
    assert settings.operators["orders"].options == {"password": "hush-k", "wait": "hush-ms"}


def test_no_fault_shows_a_secret(tmp_path: Path) -> None:
    text = EVERYWHERE.replace("job =", "parallelism =").replace('token = "${H}"', 'token = ["${H}"]')
    text = (
        text.replace("kafka:", "kafak:")
        .replace('scratch = "', 'latency = "')
        .replace("name = { file", "trigger = { file")
    )
    (tmp_path / "secret").write_text("hush-g")
    (tmp_path / "malflow.toml").write_text(text)
    env = PLAIN | {"JOB": "x", "KEY": "hush-b", "MY_SECRET": "hush-l", "ANY_TOKEN": "hush-m"}
    found = check(tmp_path, env=env)
    assert len(found) == 6
    assert "hush" not in "".join(map(str, found))


def test_a_secret_stays_one_when_it_is_pickled() -> None:
    secret = pickle.loads(pickle.dumps(Secret.of("a hush b", ("hush",))))
    assert (str(secret), repr(secret)) == ("a hush b", "'a *** b'")
