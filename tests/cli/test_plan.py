"""``malflow plan``: its output, and what it leaves unchanged. Each script has a first and a changed form."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from malflow.store.local import LocalStore
from tests.cli.conftest import Done, Malflow, Script

pytestmark = pytest.mark.slow

HEAD = """
import os
from pathlib import Path
from malflow import SingleThreadRuntime, MultiProcessRuntime, StreamProvider, agg
from malflow.snapshot import FsspecBackend
from malflow.sinks import TextFileSink
from malflow.sources import TextFileSource
from malflow.windows import tumbling

def counted(_key, _value, count):
    return count + 1, count + 1

def first(value):
    if value == "bad":
        raise ValueError("a bad line")
    return value[0]

def from_v1(state, version):
    if state == 3:
        raise ValueError("three is too many")
    return state if state < 2 else None

"""

FIRST = """
def build_dataflow(provider: StreamProvider) -> None:
    lines = provider.new_stream().source("lines", TextFileSource("in/*.txt"))
    letters = lines.map("first", first, on_error="dead_letter")
    keyed = letters.key_distribute("letter", lambda msg: msg.value)
    keyed.stateful_map("count", counted, int).sink("out", TextFileSink("out.txt"))
    keyed.stateful_map("sessions", counted, int)
    keyed.stateful_map("totals", counted, int)
    keyed.ttl_map("legacy", lambda k, v, t, held: (v, (held.insert("x", 1, 10**9), held)[1]))
    lines.sink("pieces", TextFileSink("pieces/"))
"""

CHANGED = """
def build_dataflow(provider: StreamProvider) -> None:
    lines = provider.new_stream().source("lines", TextFileSource("in/*.txt"))
    letters = lines.map("first", first, on_error="dead_letter")
    keyed = letters.key_distribute("letter", lambda msg: msg.value)
    keyed.stateful_map("count", counted, int).sink("out", TextFileSink("out.txt"))
    keyed.stateful_map("sessions", counted, int, version=2, migrate=from_v1)
    keyed.stateful_map("sums", counted, int)
    keyed.stateful_op("alerts", lambda msg, count, out: count + 1, int)
    lines.sink("pieces", TextFileSink("pieces/"))
"""

RUN = """
SingleThreadRuntime(build_dataflow, persistence=FsspecBackend("kept", job="letters")).execute()
"""


@pytest.fixture
def changed(script: Script, malflow: Malflow) -> Path:
    """Run a job, then change its script; return it."""
    Path("in").mkdir()
    Path("in/a.txt").write_text("apple\navocado\nbad\nbanana\n")
    done = malflow("run", script(FIRST + RUN, head=HEAD))
    assert done.code == 0, done.err
    return script(CHANGED + RUN, head=HEAD)


def everything(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


def rows(done: Done) -> list[str]:
    """Return the lines below the heading, with single spaces."""
    return [re.sub(" +", " ", line).strip() for line in done.out.splitlines()[1:]]


@pytest.mark.fault("P1")
def test_plan_of_a_changed_program(changed: Path, malflow: Malflow, tmp_path: Path) -> None:
    before = everything(tmp_path)
    done = malflow("plan", changed, "--parallelism", 2, "--rename", "totals=sums")
    assert re.match(r"job letters, snapshot \d+ \(\d+ (ms|s) old, 12 keys, \d+ kB\), program flow.py\n", done.out)
    assert rows(done) == [
        "= keep dead letters of first letters 1 key",
        "= keep count stateful_map v1 2 keys",
        "^ migrate sessions stateful_map v1 -> v2 2 keys migrate=from_v1 (flow.py:18)",
        "> rename totals -> sums stateful_map v1 2 keys by renamed=",
        "+ new alerts stateful_op starts empty",
        "- dropped legacy ttl_map 2 keys REFUSED (1): --drop legacy",
        "~ moved count parallelism 1 -> 2 ~1 key change worker",
        "~ moved sessions parallelism 1 -> 2 ~1 key change worker",
        "~ moved sums parallelism 1 -> 2 ~1 key change worker",
        ". source lines 1 part in the snapshot, read from there",
        ". sink out returns to its position in the snapshot: what was written after it is dropped",
        ". sink pieces exactly once",
    ]
    assert "not known here: the outcome of the migration of 'sessions'; --deep tries it\n" in done.err
    assert "not known here: the present parts of 'lines'; --deep lists them\n" in done.err
    assert re.search(r"not known here: the last commit of 'pieces': if it is after snapshot \d+, the start", done.err)
    assert done.err.endswith("1 refusal: this program would not start\n")
    assert done.code == 10
    refused = malflow("run", changed, "--parallelism", 2, "--rename", "totals=sums")
    assert re.search(r"error: (.*)", refused.err)[1] in done.err  # type: ignore[index] # it is there
    assert refused.code == 6
    assert everything(tmp_path) == before


def test_plan_reads_states_if_asked(changed: Path, malflow: Malflow, tmp_path: Path) -> None:
    Path("in/b.txt").write_text("cherry\n")
    with Path("out.txt").open("a") as out:
        out.write("written after the snapshot\n")
    before = everything(tmp_path)
    options = ["--rename", "totals=sums", "--drop", "legacy"]
    done = malflow("plan", changed, *options, "--deep", "--parallelism", 2)
    found = rows(done)
    assert found[2] == (
        "^ migrate sessions stateful_map v1 -> v2 2 keys migrate=from_v1 (flow.py:18): 2 of 2 pass, 1 dropped by it"
    )
    assert "- dropped legacy ttl_map 2 keys by allow_dropped_state=" in found
    assert ". source lines 2 parts, 1 new" in found
    assert "--deep" not in done.err
    assert done.code == 0
    assert everything(tmp_path) == before
    assert malflow("run", changed, *options, "--parallelism", 2).code == 0
    assert "after the snapshot" not in Path("out.txt").read_text()


def test_failing_migration(changed: Path, malflow: Malflow, tmp_path: Path) -> None:
    Path("in/a.txt").write_text("apple\navocado\nbad\nbanana\nant\n")
    script = Path("flow.py").read_text()
    Path("flow.py").write_text(HEAD + FIRST + RUN)
    assert malflow("run", "flow.py").code == 0
    Path("flow.py").write_text(script)
    options = [changed, "--rename", "totals=sums", "--drop", "legacy"]
    before = everything(tmp_path)
    assert malflow("plan", *options).code == 0
    done, failed = malflow("plan", *options, "--deep"), everything(tmp_path)
    assert failed == before
    assert done.code == 10
    assert "= keep count" in " ".join(rows(done))
    assert "sessions stateful_map v1 -> v2 2 keys migrate=from_v1 (flow.py:18) REFUSED (1)" in " ".join(rows(done))
    refusal = "operator 'sessions' failed at the migration of key 'a', state 3, from version 1: ValueError: three is"
    assert refusal in done.err
    assert refusal in malflow("run", *options).err


@pytest.mark.fault("P4")
def test_part_that_is_gone(script: Script, malflow: Malflow, tmp_path: Path) -> None:
    Path("in").mkdir()
    Path("in/a.txt").write_text("apple\n")
    Path("in/b.txt").write_text("apple\n" * 200_000)  # not read to its end
    growing = """
from datetime import timedelta
class Growing(TextFileSource):
    discover_every = timedelta(seconds=9)
"""
    flow = script(FIRST.replace("TextFileSource(", "Growing(") + RUN, head=HEAD + growing)
    assert malflow("run", flow, "--count", 2).code == 0
    Path("in/b.txt").unlink()
    Path("in/c.txt").write_text("cherry\n")
    before = everything(tmp_path)
    assert malflow("plan", flow).code == 0
    done = malflow("plan", flow, "--deep")
    assert f". source lines 2 parts, 1 new, 1 gone ('{tmp_path}/in/b.txt') REFUSED (1)" in rows(done)
    assert everything(tmp_path) == before
    (told,) = re.findall(r"refused \(1\): (.*)", done.err)
    assert told in malflow("run", flow, "--count", 2).err
    assert done.code == 10


def test_document(changed: Path, malflow: Malflow) -> None:
    done = malflow("plan", changed, "--rename", "totals=sums", "--json", "--deep")
    (found,) = [json.loads(line) for line in done.out.splitlines()]
    assert (done.code, done.err) == (10, "")
    facts = ("flow", "runtime", "job", "persistence", "keys", "workers", "parallelism", "starts")
    assert [found[it] for it in facts] == ["flow.py", "single", "letters", "kept", 12, 1, 1, False]
    keys = "change operator state before type keys estimate note refusals cures"
    assert {" ".join(row) for row in found["rows"]} == {keys}
    letters = found["rows"][0]
    assert (letters["operator"], letters["state"], letters["keys"]) == ("first", "first/letters", 1)
    (refusal,) = found["refusals"]
    assert list(refusal) == ["kind", "message", "operator", "key", "location", "states"]
    assert (refusal["kind"], refusal["states"]) == ("SnapshotError", ["legacy"])


@pytest.mark.parametrize("kind", ["processes", "spark"])
def test_other_runtimes(kind: str, changed: Path, malflow: Malflow, tmp_path: Path) -> None:
    before = everything(tmp_path)
    done = malflow("plan", changed, "--on", kind, "--deep", "--parallelism", 3)
    (told,) = re.findall(r"refused \(1\): (.*)", done.err)
    assert "states without an operator in the program: 'totals' (stateful_map, 2 keys), 'legacy'" in told
    assert done.code == 10
    assert "~ moved count parallelism 1 -> 3" in " ".join(rows(done))
    assert everything(tmp_path) == before


def test_workers_that_only_spark_knows(changed: Path, malflow: Malflow) -> None:
    done = malflow("plan", changed, "--on", "spark", "--rename", "totals=sums", "--drop", "legacy", "--deep")
    assert done.code == 0
    assert "not known here: the number of workers" in done.err
    assert "moved" not in done.out


def test_first_start(script: Script, malflow: Malflow, tmp_path: Path) -> None:
    flow = script(CHANGED + RUN, head=HEAD)
    before = everything(tmp_path)
    done = malflow("plan", flow)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("job letters has no snapshot in kept: everything starts new, program flow.py\n")
    assert rows(done)[0] == "+ new count stateful_map starts empty"
    assert everything(tmp_path) == before
    assert malflow("plan", flow, "--deep").code == 10, "there is no file to read"
    nested = malflow("plan", flow, "--persistence", "kept/letters", "--restore", 3)
    assert nested.err.startswith("refused (1): job 'letters' has no snapshots; got restore=3\n")


def test_state_that_is_not_kept(script: Script, malflow: Malflow) -> None:
    flow = script(CHANGED + "SingleThreadRuntime(build_dataflow).execute()", head=HEAD.replace("pieces/", "x.txt"))
    done = malflow("plan", flow)
    assert done.code == 3, "a folder needs snapshots"
    flow = script(CHANGED.replace("pieces/", "x.txt") + "SingleThreadRuntime(build_dataflow).execute()", head=HEAD)
    done = malflow("plan", flow)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("flow.py keeps no state: each start begins with none\n")


def test_hidden_states_are_those_of_their_operators(script: Script, malflow: Malflow) -> None:
    timed = """
def build_dataflow(provider: StreamProvider) -> None:
    lines = provider.new_stream().source("lines", TextFileSource("in/*.txt"))
    keyed = lines.event_time("time", lambda msg: int(msg.value), out_of_orderness=0).key_distribute("k", lambda m: 1)
    keyed.window(tumbling(5)).aggregate("NAME", agg.count()).sink("out", TextFileSink("out.txt"))
"""
    Path("in").mkdir()
    Path("in/a.txt").write_text("1\n2\n")
    assert malflow("run", script(timed.replace("NAME", "hourly") + RUN, head=HEAD)).code == 0
    assert "hourly/" in malflow("state", "ls", "kept").out
    flow = script(timed.replace("NAME", "a day") + RUN, head=HEAD)
    done = malflow("plan", flow)
    assert "- dropped hourly window 1 key REFUSED (1): --drop hourly, or --rename 'hourly=a day' (same kind)" in rows(
        done
    )
    for options in ([], ["--drop", "hourly"], ["--rename", "hourly=a day"]):
        done = malflow("plan", flow, *options, "--deep", "--parallelism", 3)
        assert "hourly/" not in done.out
        assert done.code == (0 if options else 10)
    Path("in/a.txt").write_text("1\n2\n9\n")
    assert (
        malflow("run", script(timed.replace("NAME", "hourly") + RUN, head=HEAD), "--set", "run.at_end=finish").code == 0
    )
    done = malflow("plan", script(timed.replace("NAME", "a day") + RUN, head=HEAD))
    assert re.search(r"- dropped hourly window \d keys? REFUSED \(1\): --drop hourly", " ".join(rows(done)))


def test_persistence_of_the_users(script: Script, malflow: Malflow) -> None:
    own = """
class Own:
    is_enabled = True
    def open(self, states, start):
        raise AssertionError("a plan opens nothing")
    def __repr__(self):
        return "Own()"

SingleThreadRuntime(build_dataflow, persistence=Own()).execute()
"""
    done = malflow("plan", script(CHANGED + own, head=HEAD))
    assert (done.code, done.out) == (0, "job default in Own(), program flow.py\n")
    assert done.err == "not known here: the state in Own(), which only a start opens: a plan needs an FsspecBackend\n"


def test_program_for_one_process_only(changed: Path, malflow: Malflow, script: Script) -> None:
    text = CHANGED.replace('lines.map("first", first', 'lines.map("first", lambda line, lock=Lock(): first(line)')
    options = ["--rename", "totals=sums", "--drop", "legacy"]
    flow = script(text + RUN, head=f"{HEAD}from threading import Lock\n")
    assert malflow("plan", flow, *options).code == 0
    done = malflow("plan", flow, *options, "--on", "processes")
    assert (done.code, "pickle" in done.err, done.out) == (3, True, "")
    here = RUN.replace("SingleThread", "MultiProcess").replace("persistence=", "processes=0, persistence=")
    flow = script(text + here, head=f"{HEAD}from threading import Lock\n")
    assert malflow("plan", flow, *options).code == 0


def test_start_from_empty_state(changed: Path, malflow: Malflow) -> None:
    done = malflow("plan", changed, "--restore", "none")
    assert done.code == 0
    assert re.match(r"job letters begins without snapshot \d+: everything starts new, program flow.py\n", done.out)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--rename", "totals=smus"], 2, "did you mean 'sums'?"),
        (["--job", "other", "--restore", "4"], 10, "job 'other' has no snapshots; got restore=4"),
        (["--restore", "999"], 10, "has no snapshot with the id 999"),
        (["--restore", "2001-01-01T00:00:00+00:00"], 10, "has no snapshot at or before 2001-01-01"),
        (["--persistence", "nonsense://x"], 3, "nonsense"),
        (["--parallelism", "0"], 2, "'0' is not a whole number"),
        (["--call", "2"], 3, "there is no call 2"),
    ],
)
def test_mistake(
    arguments: list[str], code: int, message: str, changed: Path, malflow: Malflow, tmp_path: Path
) -> None:
    before = everything(tmp_path)
    done = malflow("plan", changed, *arguments)
    assert message in done.err
    assert (done.code, "Traceback" in done.err) == (code, False)
    assert everything(tmp_path) == before


@pytest.mark.fault("P3")
def test_damaged_snapshot(changed: Path, malflow: Malflow) -> None:
    options = [changed, "--rename", "totals=sums", "--drop", "legacy"]
    data = [path for path in Path("kept/letters/d").rglob("*") if path.is_file()]
    for path in data:
        path.write_bytes(b"no")
    assert malflow("plan", *options).code == 0, "only manifests are read"
    done, started = malflow("plan", *options, "--deep"), malflow("run", *options)
    assert done.code == 10
    assert re.search(r"refused \(1\): (.*)", done.err)[1] in started.err  # type: ignore[index] # it is there
    for path in Path("kept/letters/m").rglob("*"):
        if path.is_file():
            path.write_bytes(b"no")
    done, started = malflow("plan", *options), malflow("run", *options)
    assert (done.code, done.out.splitlines()) == (10, ["job letters in kept, program flow.py"])
    assert re.search(r"refused \(1\): (.*)", done.err)[1] in started.err  # type: ignore[index] # it is there


@pytest.mark.fault("P2")
def test_manifests_alone_are_read(changed: Path, malflow: Malflow, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = LocalStore.get

    def get(store: LocalStore, key: str, limit: int) -> bytes:
        read.append(key)
        return real(store, key, limit)

    monkeypatch.setattr(LocalStore, "get", get)
    for name in ("put_new", "delete", "sweep", "delete_together"):
        monkeypatch.setattr(LocalStore, name, None)
    malflow("plan", changed)
    assert len(read) <= 3
    assert {key.partition("/")[0] for key in read} == {"job.json", "m"}
    read.clear()
    malflow("plan", changed, "--deep", "--rename", "totals=sums")
    assert {key.partition("/")[0] for key in read} == {"job.json", "m", "d"}


def test_hostile_texts(script: Script, malflow: Malflow) -> None:
    Path("in").mkdir()
    Path("in/a.txt").write_text("ant\napple\navocado\n")
    Path("in/\x1b[31m\u202e.txt").write_text("banana\n")
    assert malflow("run", script(FIRST + RUN, head=HEAD)).code == 0
    Path("in/\x1b[31m\u202e.txt").unlink()
    head = HEAD.replace("three is too many", r"\x1b[31m\u202e")
    done = malflow("plan", script(CHANGED + RUN, head=head), "--deep")
    assert done.code == 10
    assert ". source lines 1 part, 1 gone ('" in " ".join(rows(done))
    assert {"\x1b", "\u202e"}.isdisjoint(done.out + done.err)


COLUMNS = """
import pyarrow as pa
from malflow import SingleThreadRuntime, agg
from malflow.connectors.parquet import ArrowSource
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend

def build_dataflow(provider):
    stream = provider.new_stream().source("source", ArrowSource(pa.table({"word": ["a"], "n": [1]})))
    keyed = stream.key_distribute("key", "word")
    keyed.aggregate("sums", agg.sum("n")).sink("out", VecSink())
    keyed.stateful_map("state", lambda key, row, state: (row, state), default=int).sink("more", VecSink())

"""


def test_a_plan_shows_the_marks(script: Script, malflow: Malflow) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("numpy")
    flow = script("SingleThreadRuntime(build_dataflow, FsspecBackend('state', job='job')).execute()", head=COLUMNS)
    ends = {line.split()[2]: line.split()[-1] for line in malflow("plan", flow).out.splitlines()[1:]}
    assert {name: ends[name] for name in ("source", "sums", "state")} == {
        "source": "[columns]",
        "sums": "[columns]",
        "state": "[rows]",
    }
