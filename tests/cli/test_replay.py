"""``malflow run --replay``: the dead letters of a stopped job are replayed when the next run starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Malflow, Script

FLOW = """
    import os
    from malflow.connectors.files.json_source import TextFileSource
    from malflow.snapshot import FsspecBackend

    def parse(text):
        if os.environ.get("BROKEN") and not text.isdecimal():
            raise ValueError(text)
        return len(text) if not text.isdecimal() else int(text)

    def parsed(provider):
        lines = provider.new_stream().source("lines", TextFileSource("in.txt"))
        numbers = lines.map("parse", parse, on_error="dead_letter").map("next", lambda it: it + 1)
        numbers.sink("out", StdOutSink(formatter=lambda msg: str(msg.value)))

    SingleThreadRuntime(parsed, FsspecBackend("states")).execute()
"""


@pytest.mark.parametrize("on", ["single", pytest.param("processes", marks=pytest.mark.slow)])
def test_letters_of_a_job_whose_input_has_ended(
    on: str, malflow: Malflow, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(FLOW)
    Path("in.txt").write_text("1\nx\n3\nyy\n")
    monkeypatch.setenv("BROKEN", "1")
    first = malflow("run", "flow.py")
    assert (first.code, first.out.split()) == (0, ["2", "4"])
    again = malflow("run", "flow.py", "--replay", "parse")
    assert (again.code, again.out) == (0, "")
    assert "2 dead letters of operator 'parse' replayed" in again.err
    assert malflow("errors", "ls", "states").out.count("ValueError") == 2, "they have failed once more"
    monkeypatch.delenv("BROKEN")
    mended = malflow("run", "flow.py", "--on", on, "--replay", "parse")
    assert (mended.code, mended.out.split()) == (0, ["2", "3"])
    once = malflow("run", "flow.py", "--replay", "parse")
    assert (once.code, once.out) == (0, "")
    assert "0 dead letters of operator 'parse' replayed" in once.err


def test_letters_before_new_input(malflow: Malflow, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script(FLOW)
    Path("in.txt").write_text("x\n")
    monkeypatch.setenv("BROKEN", "1")
    assert malflow("run", "flow.py").code == 0
    monkeypatch.delenv("BROKEN")
    with Path("in.txt").open("a") as file:
        file.write("5\n")
    assert malflow("run", "flow.py", "--replay", "parse").out.split() == ["2", "6"]


def test_an_operator_without_letters_is_refused(malflow: Malflow, script: Script) -> None:
    script(FLOW)
    Path("in.txt").write_text("1\n")
    for name in ("pars", "parsed"):
        done = malflow("run", "flow.py", "--replay", name)
        assert (done.code, done.out) == (2, "")
        assert "'parse'" in done.err
    assert not Path("states").exists()
