"""Dead letters from the command line: in the snapshots of a job, and in a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.cli.output.output import Output
from malflow.cli.running.tapping import ReplayingListener
from malflow.connectors.http import HttpSink
from malflow.sinks import SinkOwner, StatelessSink, VecSink
from malflow.sinks.transactional import DroppedTransaction
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.testing import PAUSE, ScriptedSource
from tests.bad_records.refusing_service import RefusingService, refusing_service
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


@pytest.fixture
def service() -> Iterator[RefusingService]:
    with refusing_service() as made:
        yield made


def send(service: RefusingService, folder: Path, *values: int) -> None:
    def build(provider: StreamProvider) -> None:
        sink: HttpSink[Any, Any, Any] = HttpSink(service.url, retries=0, delivery="exactly-once")
        provider.new_stream().source("numbers", ScriptedSource([*values])).sink("shop", sink)

    SingleThreadRuntime(build, FsspecBackend(str(folder), job="numbers")).execute()


def test_a_released_transaction_lets_the_next_start_continue(
    tmp_path: Path, malflow: Malflow, service: RefusingService
) -> None:
    with pytest.raises(OperatorError, match="malflow errors release PATH shop"):
        send(service, tmp_path, 1, -2, 3)
    _, row = malflow("errors", "pending", tmp_path).out.splitlines()
    assert row.split()[:3] == ["shop", "1", "no"]
    assert "shop': transaction 1 released" in malflow("errors", "release", tmp_path, "shop").out
    [document] = map(json.loads, malflow("errors", "pending", tmp_path, "--json").out.splitlines())
    assert (document["sink"], document["number"], document["released"]) == ("shop", 1, True)
    send(service, tmp_path, 1, -2, 3, 4)
    assert sorted(service.values) == [1, 3, 4]
    assert [letter.value for letter in dead_letters(FsspecBackend(str(tmp_path), job="numbers"))] == [-2]
    assert "no pending transactions" in malflow("errors", "pending", tmp_path).err
    assert "no pending transaction" in malflow("errors", "release", tmp_path, "shop").err


def test_a_release_is_about_the_transactions_of_the_snapshot(
    tmp_path: Path, malflow: Malflow, service: RefusingService
) -> None:
    with pytest.raises(OperatorError):
        send(service, tmp_path, 1, -2)
    malflow("errors", "release", tmp_path, "shop")
    with pytest.raises(OperatorError, match="answered 422"):
        send(service, tmp_path, 1, -2, -3)
    assert service.values == [1]
    assert [letter.value for letter in dead_letters(FsspecBackend(str(tmp_path), job="numbers"))] == [-2]


class Refusing:
    """A sink of a user's own, without divide(), whose target refuses a transaction with a negative number."""

    def __init__(self, target: list[int]) -> None:
        self._target = target
        self._open: list[int] = []

    def sink(self, msg: Any) -> None:
        self._open.append(msg.value)

    def fence(self, owner: SinkOwner) -> None:
        pass

    def prepare(self, transaction: int) -> tuple[int, list[int]] | None:
        values, self._open = self._open, []
        return (transaction, values) if values else None

    def commit(self, handles: Any) -> None:
        for _, values in handles:
            if min(values) < 0:
                raise ValueError("negative")
            self._target += values

    def abort(self, keep: Any) -> None:
        self._open = []


def commit(folder: Path, target: list[int], script: list[Any], *, replays: bool = False) -> None:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource(script))
        numbers.key_distribute("key", lambda msg: msg.value).sink("shop", StatelessSink(Refusing(target)))

    store, listeners = FsspecBackend(str(folder), job="numbers"), [ReplayingListener("shop", Output(quiet=True))]
    each_tick = timedelta(microseconds=1)
    SingleThreadRuntime(build, store, each_tick, listeners=listeners if replays else ()).execute()


@pytest.mark.fault("N18")
def test_a_transaction_that_can_not_be_divided_is_dropped_as_a_whole(tmp_path: Path, malflow: Malflow) -> None:
    target: list[int] = []
    for _ in range(2):
        with pytest.raises(OperatorError, match="malflow errors release PATH shop --drop 2"):
            commit(tmp_path, target, [1, PAUSE, 2, -3])
    assert "has no pending transaction 1 in the latest snapshot; it has 2" in (
        malflow("errors", "release", tmp_path, "shop", "--drop", 1).err
    )
    assert "transaction 2 dropped" in malflow("errors", "release", tmp_path, "shop", "--drop", 2).out
    assert malflow("errors", "pending", tmp_path).out.splitlines()[1].split()[:3] == ["shop", "2", "dropped"]
    for _ in range(2):
        commit(tmp_path, target, [1, PAUSE, 2, -3, 4])
    assert target == [1, 4]
    (letter,) = dead_letters(FsspecBackend(str(tmp_path), job="numbers"))
    assert letter.value == DroppedTransaction(2, (2, [2, -3]))
    assert "no pending transactions" in malflow("errors", "pending", tmp_path).err


def test_letter_of_a_dropped_transaction_stays_at_a_replay(tmp_path: Path, malflow: Malflow) -> None:
    target: list[int] = []
    with pytest.raises(OperatorError, match="--drop 1"):
        commit(tmp_path, target, [-1])
    [document] = map(json.loads, malflow("errors", "release", tmp_path, "shop", "--drop", 1, "--json").out.splitlines())
    assert (document["kind"], document["sink"], document["transactions"]) == ("dropped", "shop", [1])
    for _ in range(2):
        commit(tmp_path, target, [-1, PAUSE, PAUSE, 2], replays=True)
    assert target == [2]
    (letter,) = dead_letters(FsspecBackend(str(tmp_path), job="numbers"))
    assert letter.value.handle == (1, [-1])
