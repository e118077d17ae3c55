"""``malflow run`` on scripts of all kinds, unchanged."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HEAD, Malflow, Script, process

pytestmark = pytest.mark.slow

COUNTED = ["a1", "b1", "a2"]

KINDS = {
    "with a guard": """
        if __name__ == "__main__":
            SingleThreadRuntime(build_dataflow).execute()
    """,
    "without a guard": "SingleThreadRuntime(build_dataflow).execute()",
    "that is started": "SingleThreadRuntime(build_dataflow).start().await_termination()",
    "in a thread": """
        import threading
        threading.Thread(target=SingleThreadRuntime(build_dataflow).execute).start()
    """,
    "in a with block": """
        import tempfile
        from pathlib import Path
        from malflow.snapshot import FsspecBackend
        with tempfile.TemporaryDirectory() as folder:
            SingleThreadRuntime(build_dataflow, persistence=FsspecBackend(folder)).execute()
            assert any(Path(folder).iterdir())
        assert not Path(folder).exists()
    """,
    "that catches everything": """
        try:
            SingleThreadRuntime(build_dataflow).execute()
        except BaseException:
            pass
    """,
    "with a thread that waits for the run": """
        import threading
        runtime = SingleThreadRuntime(build_dataflow)
        def wait():
            while not runtime.progress.records.get("out"):
                pass
        threading.Thread(target=wait).start()
        runtime.execute()
    """,
    "that calls nothing": "",
    "of a builder": "SingleThreadRuntime.builder().parallelism(1).build(build_dataflow).execute()",
}


@pytest.mark.parametrize("kind", KINDS)
def test_script(kind: str, script: Script, malflow: Malflow) -> None:
    done = malflow("run", script(KINDS[kind]))
    assert (done.code, done.out.split()) == (0, COUNTED), done.err
    assert re.fullmatch(r"running flow on one thread(, 2 workers)?, .*\nflow ended after tick \d+.*\n", done.err)


def test_script_is_what_it_is_under_python(script: Script, malflow: Malflow) -> None:

    text = """
        import os, pickle, sys
        from pathlib import Path
        class Kept:
            pass
        assert isinstance(pickle.loads(pickle.dumps(Kept())), Kept)
        assert sys.modules["__main__"].Kept is Kept
        assert __name__ == "__main__" and __file__ == "flow.py" and __spec__ is None
        assert sys.argv == ["flow.py", "--day", "monday", "-q"]
        assert sys.path[0] == os.getcwd()
        SingleThreadRuntime(build_dataflow).execute()
        print("after")
    """
    done = malflow("run", script(text), "-q", "--", "--day", "monday", "-q")
    assert (done.code, done.out.split(), done.err) == (0, [*COUNTED, "after"], "")


def test_script_with_arguments_of_its_own(script: Script, malflow: Malflow) -> None:
    flow = script("""
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--day", required=True)
        print(parser.parse_args().day)
        SingleThreadRuntime(build_dataflow).execute()
    """)
    assert malflow("run", flow, "--", "--day", "monday").out.split() == ["monday", *COUNTED]
    done = malflow("run", flow)
    assert done.code == 2
    assert "usage: flow.py" in done.err
    assert 'flow.py ended before execute(); its own arguments follow "--"' in done.err


def test_script_with_two_runs(script: Script, malflow: Malflow) -> None:
    flow = script("""
        for number in (1, 2):
            print("run", number)
            SingleThreadRuntime(build_dataflow).execute()
    """)
    assert malflow("run", flow).out.split() == ["run", "1", *COUNTED, "run", "2", *COUNTED]
    done = malflow("run", flow, "--call", 2)
    assert done.out.split() == ["run", "1", "run", "2", *COUNTED]
    assert "call 1, of execute(), is left out (--call 2)" in done.err
    done = malflow("run", flow, "--call", 3)
    assert (done.code, done.err.splitlines()[-1]) == (
        3,
        "error: flow.py called execute() or start() 2 times; there is no call 3",
    )


@pytest.mark.parametrize("name", ["build_dataflow", "runtime", "made", "holder.build", "given"])
def test_name_in_a_script(name: str, script: Script, malflow: Malflow) -> None:
    flow = script("""
        runtime = SingleThreadRuntime(build_dataflow)
        def made():
            return SingleThreadRuntime(build_dataflow)
        def given():
            return build_dataflow
        class holder:
            build = staticmethod(build_dataflow)
        SingleThreadRuntime(build_dataflow).execute()
        print("imported as", __name__)
    """)
    done = malflow("run", f"{flow}:{name}")
    assert (done.code, done.out.split("\n")[:4]) == (0, ["imported as flow", *COUNTED])
    assert "execute() is left out: the flow is only imported" in done.err


@pytest.mark.parametrize("target", ["flows.counting", "flows.counting:build_dataflow", "flows"])
def test_module(target: str, script: Script, malflow: Malflow, tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    text = "if __name__ == '__main__':\n    SingleThreadRuntime(build_dataflow).execute()"
    for name in ("__init__", "counting", "__main__"):
        script("" if name == "__init__" else text, f"flows/{name}.py", "" if name == "__init__" else HEAD)
    done = malflow("run", target)
    assert (done.code, done.out.split()) == (0, COUNTED), done.err


def test_state_that_is_kept(script: Script, malflow: Malflow) -> None:
    flow = script("""
        import sys
        source = SingleIteratorSource([*sys.argv[1]])
        def build_dataflow(provider):
            keyed = provider.new_stream().source("words", source).key_distribute("word", lambda msg: msg.value)
            counts = keyed.stateful_map("count", lambda _word, _value, count: (count + 1, count + 1), default=int)
            counts.sink("out", StdOutSink(formatter=lambda msg: f"{msg.key}{msg.value}"))
        SingleThreadRuntime(build_dataflow).execute()
    """)
    first = malflow("run", flow, "--persistence", "kept", "--job", "words", "--snapshots", "10s", "--", "ab")
    assert re.sub(r"\d+ ms", "9 ms", first.err).splitlines() == [
        "running words on one thread, state in kept/",
        "words ended after tick 2: snapshot 2 written (2 keys, 9 ms)",
    ]
    second = malflow("run", flow, "--persistence", "kept", "--job", "words", "--", "a")
    assert second.out == "a2\n"
    assert re.search(r"resumed words from snapshot 2 \(\d+ m?s old, 2 keys\)\n", second.err)
    anew = malflow("run", flow, "--persistence", "kept", "--job", "words", "--restore", "none", "--", "a")
    assert anew.out == "a1\n"
    other = malflow("run", flow, "--persistence", "kept", "--job", "others", "--", "a")
    assert other.out == "a1\n"


def test_store_of_the_script_with_another_job(script: Script, malflow: Malflow) -> None:
    flow = script("""
        from malflow.snapshot import FsspecBackend
        SingleThreadRuntime(build_dataflow, persistence=FsspecBackend("kept", job="mine", codec="msgpack")).execute()
    """)
    assert malflow("run", flow, "--job", "other").code == 0
    assert [it.name for it in Path("kept").iterdir()] == ["other"]
    assert malflow("run", flow, "--persistence", "elsewhere").code == 0
    assert [it.name for it in Path("elsewhere").iterdir()] == ["mine"]


def test_options_reach_the_run(script: Script, malflow: Malflow) -> None:
    flow = script("""
        from malflow.snapshot import FsspecBackend
        from datetime import timedelta
        def build_dataflow(provider):
            numbers = provider.new_stream().source("numbers", SingleIteratorSource([1]))
            numbers.inspect("show", lambda msg, ctx: print(len(ctx.workers)))
        SingleThreadRuntime(build_dataflow).execute()
    """)
    done = malflow("run", flow, "--parallelism", 3, "--debug", "--sinks", "accept_duplicates", "--recovery", "previous")
    assert done.out == "3\n"
    assert "on one thread, 3 workers" in done.err


def test_other_kinds_of_runtimes(script: Script, malflow: Malflow) -> None:
    done = malflow("run", script("MultiProcessRuntime(build_dataflow, parallelism=3).execute()"), "--on", "single")
    assert done.out.split() == COUNTED
    assert "running flow on one thread, 3 workers" in done.err
    flow = script("MultiProcessRuntime(build_dataflow, processes=2, start_method='forkserver').execute()")
    done = malflow("run", flow, "--on", "single")
    assert (done.code, done.out) == (4, "")
    assert "2 faults:\n" in done.err
    assert "processes= is an option of MultiProcessRuntime, which SingleThreadRuntime does not have" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rename", "old=cuont"], "the flow has no operator 'cuont'; did you mean 'count'?"),
        (["--rename", "old"], "must be two names of an operator: old=new"),
        (["--snapshots", "soon"], "'soon' is not a time above zero, such as 500ms"),
        (["--parallelism", "0"], "'0' is not a whole number of one or more"),
        (["--restore", "yesterday"], "'yesterday' is not latest, none"),
        (["--paralelism", "2"], "--parallelism"),
        (["--on", "flink"], "'single', 'processes', 'spark'"),
    ],
)
def test_option_that_is_wrong(options: list[str], message: str, script: Script, malflow: Malflow) -> None:
    done = malflow("run", script("SingleThreadRuntime(build_dataflow).execute()"), *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_limits(script: Script, malflow: Malflow) -> None:
    flow = script("""
        from itertools import count
        def build_dataflow(provider):
            numbers = provider.new_stream().source("numbers", SingleIteratorSource(count()))
            numbers.inspect("none", lambda msg, ctx: None)
        SingleThreadRuntime(build_dataflow).execute()
    """)
    done = malflow("run", flow, "--count", 100)
    assert done.code == 0
    assert "flow stopped after tick" in done.err
    assert "flow stopped after tick" in malflow("run", flow, "--timeout", "100ms").err


FAILING = (
    "def build_dataflow(it):\n"
    "    zeros = it.new_stream().source('n', SingleIteratorSource([0]))\n"
    "    zeros.map('up', lambda n: 1 / n).sink('out', StdOutSink())\n"
)

ERRORS = {
    "a function that fails": (
        5,
        FAILING + "SingleThreadRuntime(build_dataflow).execute()",
        r"error: operator 'up' failed at .*ZeroDivisionError.*\n   flow.py:14  zeros.map.*\n",
    ),
    "a malformed dataflow": (
        3,
        "SingleThreadRuntime(lambda provider: provider.new_stream().source('n', 1)).execute()",
        r"error: .*flow.py:12\]\n   flow.py:12  SingleThreadRuntime.*\n",
    ),
    "an exception of the script": (
        1,
        "def fail():\n    raise KeyError('x')\nfail()",
        r"error: KeyError: 'x'\n   flow.py:14  fail\(\)\n   flow.py:13  raise.*\n",
    ),
    "an error of a library": (
        1,
        "import json\njson.loads('{')",
        r"error: JSONDecodeError: .*\n   flow.py:13  json.loads.*\n",
    ),
    "in a thread": (
        5,
        FAILING + "import threading\nthreading.Thread(target=SingleThreadRuntime(build_dataflow).execute).start()",
        r"error: operator 'up' failed at .*\n   flow.py:14 .*\n",
    ),
    "an interrupt": (130, "raise KeyboardInterrupt", r"error: interrupted\n"),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_error(kind: str, script: Script, malflow: Malflow) -> None:
    code, text, pattern = ERRORS[kind]
    done = malflow("run", script(text), "-q")
    assert re.fullmatch(pattern, done.err)
    assert done.code == code


def test_error_in_another_process(script: Script) -> None:
    text = "def half(number):\n    return 1 / number\n" + FAILING.replace("lambda n: 1 / n", "half")
    done = process("run", script(text + "MultiProcessRuntime(build_dataflow, processes=2).execute()"), "-q")
    assert done.code == 5
    assert done.err.endswith("\n   flow.py:13  return 1 / number\n")


def test_error_with_all_frames(script: Script, malflow: Malflow) -> None:
    done = malflow("run", script("raise KeyError('x')"), "--traceback")
    assert done.err.startswith("Traceback (most recent call last):")
    assert "script.py" in done.err


def test_error_as_document(script: Script, malflow: Malflow) -> None:
    done = malflow("run", script(ERRORS["a function that fails"][1]), "--json")
    *_events, last = [json.loads(line) for line in done.err.splitlines()]
    assert last.keys() == {"malflow", "kind", "error"}
    assert last["error"].keys() == {"kind", "message", "operator", "key", "location"}
    assert (last["error"]["operator"], last["error"]["kind"]) == ("up", "OperatorError")
    assert last["error"]["location"] == "flow.py:14"


def test_last_snapshot_is_named_after_a_failure(script: Script, malflow: Malflow) -> None:
    flow = script("""
        from malflow.snapshot import FsspecBackend
        fails = False
        def build_dataflow(provider):
            numbers = provider.new_stream().source("n", SingleIteratorSource([0]))
            numbers.map("up", lambda n: 1 / n if fails else n)
        runtime = SingleThreadRuntime(build_dataflow, persistence=FsspecBackend("kept"))
        runtime.execute()
        fails = True
        runtime.execute()
    """)
    done = malflow("run", flow)
    assert done.code == 5
    hint = "   snapshot 2 stands; mend it and run again"
    assert done.err.splitlines()[-1] == f"{hint}, or --set operators.up.on_error=dead_letter"
    assert malflow("run", flow, "--set", "operators.up.on_error=dead_letter").code == 0


def test_policy_is_proposed_where_one_can_be(script: Script, malflow: Malflow) -> None:
    flow = script("""
        from malflow import agg
        from malflow.snapshot import FsspecBackend
        runs = []
        def build_dataflow(provider):
            numbers = provider.new_stream().source("n", SingleIteratorSource([0]))
            keyed = numbers.key_distribute("key", lambda msg: msg.value)
            keyed.aggregate("sum", agg.fold(int, lambda total, n: 1 / n if len(runs) > 1 else total + n))
        for _ in range(2):
            runs.append(1)
            SingleThreadRuntime(build_dataflow, persistence=FsspecBackend("kept")).execute()
    """)
    done = malflow("run", flow)
    assert done.err.splitlines()[-1] == "   snapshot 2 stands; mend it and run again"


@pytest.mark.parametrize("argument", ["3", "'text'", "0", ""])
def test_script_that_exits(argument: str, script: Script, malflow: Malflow) -> None:
    text = f"SingleThreadRuntime(build_dataflow).execute()\nimport sys\nsys.exit({argument})"
    done = malflow("run", script(text), "-q")
    assert (done.code, done.err) == {"3": (3, ""), "'text'": (1, "text\n")}.get(argument, (0, ""))
    assert done.out.split() == COUNTED


def test_message_that_is_long_or_has_control_characters(script: Script, malflow: Malflow) -> None:
    done = malflow("run", script("raise ValueError('\\x1b[31m' + 'x' * 1_000_000)"))
    assert done.code == 1
    assert r"ValueError: \x1b[31mxxx" in done.err
    assert len(done.err) < 5_000


def test_errors_of_a_run_that_the_script_handles(script: Script, malflow: Malflow) -> None:
    done = malflow("run", script("""
        def build_dataflow(provider):
            zeros = provider.new_stream().source("n", SingleIteratorSource([0]))
            zeros.map("up", lambda n: 1 / n).sink("out", StdOutSink())
        try:
            SingleThreadRuntime(build_dataflow).execute()
        except OperatorError as error:
            print(error.operator)
    """), "-q")  # fmt: skip
    assert (done.code, done.out, done.err) == (0, "up\n", "")


def test_command_within_a_command(script: Script, malflow: Malflow) -> None:
    script("SingleThreadRuntime(build_dataflow).execute()", "inner.py")
    done = malflow("run", script("from malflow.cli import main\nraise SystemExit(main(['run', 'inner.py']))"))
    assert done.code == 3
    assert "run the other one in a process of its own" in done.err


@pytest.mark.parametrize("options", [["--rename", "old=cuont"], ["--job", "x"], ["--persistence", "nonsense://x"]])
def test_mistake_that_the_script_catches(options: list[str], script: Script, malflow: Malflow) -> None:
    done = malflow("run", script(KINDS["that catches everything"]), *options)
    assert (done.code, done.out) == (2 if "old=cuont" in options else 4 if "--job" in options else 3, "")
    assert done.err.startswith("error: ")


def test_mistake_that_the_script_catches_again_and_again(script: Script) -> None:
    done = process("run", script("""
        while True:
            try:
                SingleThreadRuntime(build_dataflow).execute()
            except BaseException:
                pass
    """), "--job", "x")  # fmt: skip
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("error: ")
    assert "--job" in done.err


def test_run_whose_error_nobody_waits_for(script: Script, malflow: Malflow) -> None:
    done = malflow("run", script(FAILING + """
import time
handle = SingleThreadRuntime(build_dataflow).start()
while not handle.has_ended:
    time.sleep(0.01)
"""))  # fmt: skip
    assert done.code == 0
    assert "flow failed after tick 0: operator 'up' failed at" in done.err


def test_argument_of_the_script_without_the_dashes(script: Script, malflow: Malflow) -> None:
    done = malflow("run", script(""), "--day", "monday")
    assert (done.code, 'arguments of the script follow "--"' in done.err) == (2, True)


def test_events_as_documents(script: Script, malflow: Malflow) -> None:
    done = malflow("run", script(KINDS["with a guard"]), "--json", "--persistence", "kept")
    assert done.out.split() == COUNTED
    kinds = [json.loads(line)["kind"] for line in done.err.splitlines()]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_finished"
    assert "snapshot_committed" in kinds


def test_log(script: Script, malflow: Malflow) -> None:
    flow = script(KINDS["with a guard"])
    assert "info: job 'default' starts without state, with 1 worker" in malflow("run", flow, "-v").err
    assert "info:" not in malflow("run", flow).err
    own = script("import logging\nlogging.basicConfig(format='OWN %(message)s')\n" + KINDS["without a guard"], "own.py")
    for command in (
        lambda: malflow("run", flow, "--persistence", "kept", "--job", "words"),
        lambda: process("run", own, "--persistence", "kept", "--job", "words"),
    ):
        done = command()
    assert "OWN source 'words' has no positions" in done.err
    assert "warning:" not in done.err


@pytest.mark.spark
@pytest.mark.nightly
def test_script_on_spark(script: Script, malflow: Malflow, spark: Any) -> None:
    flow = script(KINDS["with a guard"])
    done = malflow("run", flow, "--on", "spark", "--parallelism", 2)
    assert (done.code, sorted(done.out.split())) == (0, sorted(COUNTED))
    assert "running flow on Spark, 2 workers" in done.err


def test_safe_path(script: Script, malflow: Malflow, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flags:
        safe_path = True

    monkeypatch.setattr(sys, "flags", Flags())
    before = sys.path[0]
    assert (
        malflow("run", script("import sys; print(sys.path[0])\n" + KINDS["without a guard"])).out.split()[0] == before
    )


@pytest.mark.parametrize("command", ["run", "check", "plan", "graph"])
def test_arguments_of_the_script_follow_two_hyphens(malflow: Malflow, script: Script, command: str) -> None:
    script(
        f"{HEAD}import sys\nprint(sys.argv)\n"
        "def build(p):\n    p.new_stream().source('in', SingleIteratorSource([])).sink('out', StdOutSink())\n"
        "SingleThreadRuntime(build).execute()\n"
    )
    done = malflow(command, "flow.py", "nonsense:port")
    assert (done.code, done.out) == (2, "")
    assert "unexpected argument 'nonsense:port'; arguments of the script follow '--'" in done.err
    assert "'nonsense:port'" in malflow(command, "flow.py", "--", "nonsense:port").out
