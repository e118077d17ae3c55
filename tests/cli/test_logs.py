"""The log of ``malflow run``: lines or JSON documents, by option or configuration."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.cli.conftest import Malflow, Script

FLOW = """
    import logging

    log = logging.getLogger("malflow.users")

    def look(word):
        log.warning("word %s of %s", f"{word}\\n error: forged\\x1b[2J\\u202e", "s3://me:hush@host/x")
        log.debug("details of %s", word)
        return word if word != FAILS else 1 / 0

    def looked(provider):
        words = provider.new_stream().source("words", SingleIteratorSource(["a", "b", "c"]))
        words.map("look", look).inspect("end", lambda msg, context: None)

    FAILS = "none"
    SingleThreadRuntime(looked).execute()
"""


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of a log; any other line fails."""
    assert text.isascii()
    return [json.loads(line) for line in text.splitlines()]


def test_lines_of_text(malflow: Malflow, script: Script) -> None:
    script(FLOW)
    told = malflow("run", "flow.py").err
    lines = [it for it in told.splitlines() if it.startswith("warning: word")]
    assert lines == ["warning: word a\\n error: forged\\x1b[2J\\u202e of s3://***@host/x"], "the others repeat it"
    assert "error: forged" not in [line.strip() for line in told.splitlines()]
    assert told.replace("\n", "").isprintable()


def test_json_documents(malflow: Malflow, script: Script) -> None:
    script(FLOW)
    for given in (["--log-format", "json"], ["--set", "log.format=json"]):
        found = documents(malflow("run", "flow.py", *given).err)
        assert [it["level"] for it in found] == ["info", "warning", "info", "info"], given
        assert found[0]["job"] == "default"
        assert found[1]["message"].startswith("word a\n error: forged")
    both = malflow("run", "flow.py", "--log-format", "text", "--set", "log.format=json")
    assert "running flow on one thread" in both.err, "an option counts more than a configuration"


def test_levels(malflow: Malflow, script: Script) -> None:
    script(FLOW)
    Path("malflow.toml").write_text('[log]\nformat = "json"\nlevel = "error"\n')
    assert malflow("run", "flow.py").err == ""
    Path("malflow.toml").write_text('[log]\nlevel = "debug"\n')
    told = malflow("run", "flow.py").err
    assert len(re.findall("debug: details of", told)) == 3
    assert "has no effect" not in told
    Path("malflow.toml").write_text('[log]\nlevel = "loud"\n')
    wrong = malflow("run", "flow.py", "--log-format", "json")
    assert wrong.code == 4
    assert "log.level" in wrong.err


def test_an_error_in_a_json_log(malflow: Malflow, script: Script) -> None:
    script(FLOW.replace('"none"', '"b"'))
    done = malflow("run", "flow.py", "--log-format", "json")
    assert done.code == 5
    last = documents(done.err)[-1]
    assert (last["level"], last["operator"]) == ("error", "look")
    assert "ZeroDivisionError" in last["error"]


def test_long_values_leave_documents_whole(malflow: Malflow, script: Script) -> None:
    script(FLOW.replace("word %s of %s", "word %.2s%s" + "x" * 9000))
    found = documents(malflow("run", "flow.py", "--log-format", "json").err)
    assert len(found[1]["message"]) > 9000
