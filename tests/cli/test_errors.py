"""Dead letters from the command line: in the snapshots of a job, and in a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.testing import ScriptedSource
from tests.cli.conftest import Malflow


def parse(text: str) -> int:
    if text.startswith("\x1b"):
        raise ValueError("not \x1b[31m a number")
    return int(text)


def numbers(provider: StreamProvider) -> None:
    texts = provider.new_stream().source("texts", ScriptedSource(["1", "one", "2", "\x1b[31mred"]))
    texts.map("parse", parse, on_error="dead_letter").sink("out", VecSink())


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return a store with two dead letters."""
    SingleThreadRuntime(numbers, FsspecBackend(tmp_path)).execute()
    return tmp_path


def test_letters_of_a_snapshot(stored: Path, malflow: Malflow) -> None:
    done = malflow("errors", "ls", stored)
    assert done.code == 0
    heading, first, second = done.out.splitlines()
    assert heading.split() == ["operator", "id", "key", "value", "error", "attempts"]
    assert first.split()[0] == "parse"
    assert "'one'" in first
    assert "invalid literal" in first
    assert "\x1b" not in second
    assert malflow("errors", "ls", stored, "--match", "red").out.split()[6] == "parse"
    assert "1 more" in malflow("errors", "ls", stored, "--limit", 1).err
    assert "no dead letters" in malflow("errors", "ls", stored, "--operator", "other").err
    documents = [json.loads(line) for line in malflow("errors", "ls", stored, "--json").out.splitlines()]
    assert [it["kind"] for it in documents] == ["letter", "letter"]
    assert (documents[0]["operator"], documents[0]["value"], documents[0]["attempts"]) == ("parse", "'one'", 1)


def test_letters_that_park_a_key_are_marked(tmp_path: Path, malflow: Malflow) -> None:
    def parked(provider: StreamProvider) -> None:
        texts = provider.new_stream().source("texts", ScriptedSource(["one", "2", "3"]))
        keyed = texts.key_distribute("key", lambda _msg: "k")
        keyed.map("parse", parse, on_error="park").sink("out", VecSink())

    SingleThreadRuntime(parked, FsspecBackend(tmp_path)).execute()
    _, first, second, third = malflow("errors", "ls", tmp_path).out.splitlines()
    assert "parks its key; ValueError" in first
    assert "Parked: an earlier record of its key" in second
    assert third.split()[-1] == "0"
    documents = [json.loads(line) for line in malflow("errors", "ls", tmp_path, "--json").out.splitlines()]
    assert [(it["is_parked"], it["attempts"]) for it in documents] == [(True, 1), (True, 0), (True, 0)]


def test_letter_with_its_traceback(stored: Path, malflow: Malflow) -> None:
    first, second = dead_letters(FsspecBackend(stored))
    done = malflow("errors", "show", stored, first.id)
    assert done.code == 0
    assert "key NoKey, value 'one', timestamp 1" in done.out
    assert "return int(text)" in done.out
    assert "\x1b" not in malflow("errors", "show", stored, second.id).out
    assert "return int(text)" in json.loads(malflow("errors", "show", stored, first.id, "--json").out)["trace"]
    absent = malflow("errors", "show", stored, "none")
    assert (absent.code, absent.out) == (6, "")
    assert "there is no dead letter 'none'" in absent.err
