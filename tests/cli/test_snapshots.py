"""``malflow snapshots`` and ``malflow state``, on the snapshots of a script."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import TextFileSink, VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from tests.cli.conftest import Malflow, environment

pytestmark = pytest.mark.slow

IDS = [2, 4, 6, 8]


def count(job: str, words: list[Any], **options: Any) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        source = provider.new_stream().source("words", SingleIteratorSource(words))
        keyed = source.key_distribute("word", lambda msg: msg.value)
        keyed.stateful_map("count", lambda _k, _v, count: (count + 1, count + 1), default=int).sink("out", VecSink())

    SingleThreadRuntime(build_dataflow, persistence=FsspecBackend("kept", job=job, **options)).execute()


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the state of a job in the folder `kept`."""
    monkeypatch.chdir(tmp_path)
    for words in (["a", "b", 7], ["a"], ["a", (1, "x")], ["c"]):
        count("words", words)
    return tmp_path / "kept"


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


SNAPSHOT = {
    "malflow",
    "kind",
    "job",
    "id",
    "latest",
    "at",
    "tick",
    "increment",
    "keys",
    "bytes",
    "files",
    "parallelism",
    "codec",
    "writer",
}


@pytest.mark.parametrize("place", [["kept"], ["kept", "--job", "words"], ["kept/words"]])
def test_list(place: list[str], malflow: Malflow) -> None:
    done = malflow("snapshots", "ls", *place)
    assert (done.code, done.err) == (0, "")
    head, *rows = [line.split() for line in done.out.splitlines()]
    assert head[0] == "id"
    assert [row[0] for row in rows] == ["2", "4", "6", "*"]
    found = documents(malflow("snapshots", "ls", *place, "--json").out)
    assert [(it["id"], it["latest"], it["keys"]) for it in found] == [
        (2, False, 3),
        (4, False, 3),
        (6, False, 4),
        (8, True, 5),
    ]
    assert all(it.keys() == SNAPSHOT for it in found)
    assert found[0]["at"].endswith("Z")


def test_table_without_a_terminal_needs_no_rich() -> None:
    program = (
        "import sys; from malflow.cli import main; main(['snapshots', 'ls', 'kept']); print('rich' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment())
    assert done.stdout.splitlines()[-1] == "False"


def test_show(malflow: Malflow) -> None:
    text = malflow("snapshots", "show", "kept", 4).out
    assert text.startswith("snapshot 4 of job 'words', ")
    assert "stateful_map" in text
    (found,) = documents(malflow("snapshots", "show", "kept", "--json").out)
    assert found["kind"] == "snapshot_details"
    assert found["states"][1].keys() == {"operator", "type", "version", "keys", "placement", "definition"}
    assert (found["states"][1]["operator"], found["states"][1]["keys"]) == ("count", 5)
    assert found["stored"][0].keys() == {"name", "bytes", "base"}


def test_verify(malflow: Malflow, kept: Path) -> None:
    assert malflow("snapshots", "verify", "kept").out == "4 snapshots, no problem\n"
    assert malflow("snapshots", "verify", "kept", "--values").code == 0
    file = next((kept / "words" / "d").rglob("*"))
    file.write_bytes(b"no")
    done = malflow("snapshots", "verify", "kept")
    assert done.code == 10
    assert "damaged: " in done.out
    (found,) = documents(malflow("snapshots", "verify", "kept", "--json").out)
    assert found.keys() == {"malflow", "kind", "snapshots", "problems", "notes", "unused"}
    assert found["problems"]


def test_differences(malflow: Malflow) -> None:
    assert malflow("snapshots", "diff", "kept", 2, "--operator", "count").out == "count: +2 -0 ~1 keys\n"
    text = malflow("snapshots", "diff", "kept", 4, 2, "--values", "--operator", "count").out
    assert text == "  ~ 'a'  2 -> 1\ncount: +0 -0 ~1 keys\n"
    found = documents(malflow("snapshots", "diff", "kept", 2, 6, "--values", "--json", "--operator", "count").out)
    assert found[0].keys() == {"malflow", "kind", "operator", "key", "before", "after"}
    assert {(it["key"], it["before"], it["after"]) for it in found[:-1]} == {("'a'", "1", "3"), ("(1, 'x')", None, "1")}
    assert found[-1] == {
        "malflow": 1,
        "kind": "difference",
        "operator": "count",
        "added": 1,
        "removed": 0,
        "changed": 1,
    }
    assert malflow("snapshots", "diff", "kept", 2, "--operator", "cuont").code == 2


def test_differences_of_an_operator_of_another_kind(malflow: Malflow) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        source = provider.new_stream().source("words", SingleIteratorSource(["a", "z"]))
        source.key_distribute("word", lambda msg: msg.value).stateful_op("count", lambda _m, state, _out: state, int)

    backend = FsspecBackend("kept", job="words")
    SingleThreadRuntime(build_dataflow, backend, allow_dropped_state=["count"]).execute()
    done = malflow("snapshots", "diff", "kept", 8)
    assert (done.code, done.out) == (0, "words: +0 -0 ~0 keys\ncount: +2 -5 ~0 keys\n")


def test_restore(malflow: Malflow) -> None:
    refused = malflow("snapshots", "restore", "kept", 4)
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    assert malflow("state", "get", "count", "a", "kept").out == "3\n"
    done = malflow("snapshots", "restore", "kept", 4, "--yes")
    assert done.out == "snapshot 4 is the latest of job 'words'; the next run resumes from it\n"
    assert "a run of this job that is still alive is fenced" in done.err
    assert malflow("state", "get", "count", "a", "kept").out == "2\n"
    (found,) = documents(malflow("snapshots", "restore", "kept", 8, "--yes", "--json").out)
    assert found == {"malflow": 1, "kind": "restored", "job": "words", "snapshot": 8}


def test_restore_says_what_sinks_may_have_written(malflow: Malflow, tmp_path: Path) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        items = provider.new_stream().source("items", SingleIteratorSource(["a", "b"]))
        items.sink("out", TextFileSink(str(tmp_path / "out.txt")))

    for _ in range(2):
        SingleThreadRuntime(build_dataflow, persistence=FsspecBackend("kept", job="files")).execute()
    found = documents(malflow("snapshots", "ls", "kept", "--job", "files", "--json").out)
    first, latest = found[0]["id"], found[-1]["id"]
    done = malflow("snapshots", "restore", "kept", first, "--job", "files", "--yes")
    assert f"sink 'out' may have written more than snapshot {first} has" in done.err
    assert "may have written" not in malflow("snapshots", "restore", "kept", first, "--job", "files", "--yes").err
    assert malflow("snapshots", "restore", "kept", latest, "--job", "files", "--yes").code == 0


def test_remove(malflow: Malflow) -> None:
    refused = malflow("snapshots", "rm", "kept", 4)
    assert (refused.code, "Delete 2 snapshots (2, 4) of job 'words'?" in refused.err) == (2, True)
    assert malflow("snapshots", "rm", "kept", 4, "--yes").out == "deleted 2 snapshots: 2, 4\n"
    assert [it["id"] for it in documents(malflow("snapshots", "ls", "kept", "--json").out)] == [6, 8]
    assert malflow("snapshots", "rm", "kept", 8, "--yes").code == 6


@pytest.mark.parametrize(
    ("key", "at", "value"), [("a", "latest", 3), ("a", 2, 1), ("7", "latest", 1), ("(1, 'x')", 6, 1)]
)
def test_state_of_a_key(key: str, at: Any, value: int, malflow: Malflow) -> None:
    done = malflow("state", "get", "count", key, "kept", "--at", at)
    assert done.out == f"{value}\n"
    assert done.err.startswith(f"as of snapshot {8 if at == 'latest' else at} of job 'words', ")
    (found,) = documents(malflow("state", "get", "count", key, "kept", "--at", at, "--json").out)
    assert found.keys() == {"malflow", "kind", "operator", "key", "value", "snapshot", "at"}
    assert found["value"] == str(value)


def test_states_and_keys(malflow: Malflow) -> None:
    assert [line.split()[0] for line in malflow("state", "ls", "kept").out.splitlines()] == [
        "operator",
        "words",
        "count",
    ]
    found = documents(malflow("state", "ls", "kept", "--json").out)
    assert found[1].keys() == {"malflow", "kind", "operator", "type", "version", "keys", "snapshot", "at"}
    done = malflow("state", "keys", "count", "kept", "--limit", 2, "--values")
    assert done.out == "'a'  3\n'b'  1\n"
    assert "there are more than 2; --limit shows them" in done.err
    assert len(malflow("state", "keys", "count", "kept", "-q").out.splitlines()) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["snapshots", "ls", "nowhere"], 6, "there is no folder 'nowhere'"),
        (["snapshots", "ls", "."], 6, "no run has begun there"),
        (["snapshots", "ls", "kept", "--job", "wrods"], 6, "did you mean 'words'?"),
        (["snapshots", "ls", "nonsense://x"], 3, "nonsense"),
        (["snapshots", "show", "kept", "3"], 6, "no snapshot with the id 3; it has [2, 4, 6, 8]"),
        (["snapshots", "show", "kept", "x"], 2, "'x' is not latest"),
        (["snapshots", "show", "kept", "none"], 2, "'none' is not a snapshot"),
        (["snapshots", "lss", "kept"], 2, "lss"),
        (["state", "get", "cuont", "a", "kept"], 6, "did you mean 'count'?"),
        (["state", "get", "count", "z", "kept"], 6, "has no state for key 'z' in snapshot 8"),
        (["state", "get", "count", "[]", "kept"], 6, "has no state for key '[]'"),
        (["state", "keys", "cuont", "kept"], 6, "did you mean 'count'?"),
    ],
)
def test_mistake(arguments: list[str], code: int, message: str, malflow: Malflow, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = malflow(*arguments)
    assert message in done.err
    assert (done.code, done.out) == (code, "")
    assert "Traceback" not in done.err
    assert sorted(tmp_path.rglob("*")) == before


def test_several_jobs(malflow: Malflow) -> None:
    count("others", ["a"])
    done = malflow("snapshots", "ls", "kept")
    assert (done.code, "write --job with one of others, words" in done.err) == (2, True)
    assert malflow("snapshots", "ls", "kept", "--job", "others").code == 0


def test_states_as_messagepack(malflow: Malflow) -> None:
    count("packed", ["a"], codec="msgpack")
    assert malflow("state", "get", "count", "a", "kept", "--job", "packed").out == "1\n"


def test_pickles_are_loaded_only_where_a_run_would(malflow: Malflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALFLOW_SIGNING_KEY", "a key of sixteen bytes and more")
    loaded: list[Any] = []
    monkeypatch.setattr(pickle, "loads", loaded.append)
    done = malflow("state", "get", "count", "a", "kept")
    assert (done.code, "not signed" in done.err) == (6, True)
    assert loaded == []
