"""``malflow check``, and how commands look at a dataflow without running it."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import Malflow, Script, process
from tests.cli.test_run import ERRORS, KINDS

pytestmark = pytest.mark.slow

RIGHT = "flow.py: 4 operators, 2 stages, 1 source, 1 sink, 1 state, on one thread\n"


@pytest.mark.parametrize("kind", [it for it in KINDS if "thread" not in it])
def test_script_runs_up_to_its_first_run(kind: str, script: Script, malflow: Malflow) -> None:
    done = malflow("check", script(KINDS[kind]))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(RIGHT)
    assert "a1" not in done.out


def test_resources_of_the_script_are_released(script: Script, malflow: Malflow) -> None:
    flow = script("""
        import contextlib
        with contextlib.closing(type("Resource", (), {"close": lambda self: print("closed")})()):
            try:
                SingleThreadRuntime(build_dataflow).execute()
            finally:
                print("finally")
        print("not here")
    """)
    done = malflow("check", flow, "-q")
    assert done.out.splitlines()[-2:] == ["finally", "closed"]


@pytest.mark.parametrize(
    "text",
    [
        """
        import threading
        thread = threading.Thread(target=SingleThreadRuntime(build_dataflow).execute)
        thread.start()
        thread.join()
        """,
        """
        import threading, time
        runtime = SingleThreadRuntime(build_dataflow)
        def wait():
            while not runtime.progress.records.get("out"):
                time.sleep(0.01)
        threading.Thread(target=wait).start()
        while True:
            try:
                runtime.execute()
                break
            except BaseException:
                break
        """,
        """
        import atexit, threading
        atexit.register(print, "at exit")
        atexit.register(threading.Event().wait)
        threading.Thread(target=threading.Event().wait).start()
        SingleThreadRuntime(build_dataflow).execute()
        """,
    ],
    ids=["in a thread", "with a thread that waits", "with a wait at its end"],
)
def test_command_ends_whatever_the_script_waits_for(text: str, script: Script) -> None:
    done = process("check", script(text))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(RIGHT)


def test_script_that_calls_again_after_all(script: Script, malflow: Malflow) -> None:
    flow = script("""
        for number in range(3):
            try:
                SingleThreadRuntime(build_dataflow).execute()
            except BaseException as error:
                print(number)
    """)
    done = malflow("check", flow)
    assert done.code == 0
    assert done.out.count(RIGHT) == 1


def test_one_of_several_runs(script: Script, malflow: Malflow) -> None:
    flow = script("""
        SingleThreadRuntime(build_dataflow).execute()
        MultiProcessRuntime(build_dataflow).execute()
    """)
    done = malflow("check", flow)
    assert done.err == "this is call 1 of several: --call 2 for the next\n"
    second = malflow("check", flow, "--call", 2)
    assert "in several processes" in second.out
    assert "call 1, of execute(), is left out (--call 2)" in second.err
    assert malflow("check", flow, "--call", 3).code == 3


@pytest.mark.parametrize("kind", ["a malformed dataflow", "an exception of the script", "an error of a library"])
def test_error_is_told_as_by_run(kind: str, script: Script, malflow: Malflow) -> None:
    done = malflow("check", script(ERRORS[kind][1]))
    assert (done.code, done.out) == (3, "")
    assert re.fullmatch(ERRORS[kind][2], done.err)


def test_script_that_exits_first(script: Script, malflow: Malflow) -> None:
    done = malflow("check", script("import sys\nsys.exit(7)"))
    assert (done.code, done.err) == (7, 'flow.py ended before execute(); its own arguments follow "--"\n')


FOUND = {
    "a result that nothing reads": (
        "words.map('up', str.upper)\n    words.inspect('see', print)\n    words.sink('out', StdOutSink())",
        ("warning", "unread", "up"),
    ),
    "an output that nothing reads": (
        "words.split('two', lambda msg, to: None, 2)[0].sink('out', StdOutSink())",
        ("warning", "unread", "two"),
    ),
    "a source that nothing reads": ("", ("warning", "unread", "words")),
    "state that is not kept": (
        "words.key_distribute('word', len).stateful_map('count', lambda k, v, s: (v, s)).sink('out', StdOutSink())",
        ("note", "state", "count"),
    ),
    "late records": (
        "words.assign_timestamps('t', len).generate_epochs('epochs', lambda msg, _: 1)[0].inspect('see', print)",
        ("note", "late", "epochs"),
    ),
    "a sink of one process": (
        "import threading\n    lock = threading.Lock()\n    words.inspect('see', lambda msg, _: lock)",
        ("note", "elsewhere", "see"),
    ),
}


@pytest.mark.parametrize("kind", FOUND)
def test_finding(kind: str, script: Script, malflow: Malflow) -> None:
    text, (level, name, operator) = FOUND[kind]
    flow = script(f"""
def build_dataflow(provider):
    words = provider.new_stream().source("words", SingleIteratorSource(["a"]))
    {text}

SingleThreadRuntime(build_dataflow).execute()
""")
    done = malflow("check", flow, "--json")
    document = json.loads(done.out)
    assert document.keys() == {"malflow", "kind", "flow", "runtime", "operators", "stages", "findings"}
    found = document["findings"]
    assert [(it["level"], it["kind"], it["operator"]) for it in found] == [(level, name, operator)]
    assert found[0].keys() == {"level", "kind", "operator", "message", "location"}
    assert found[0]["location"].startswith("flow.py:")
    assert done.code == (10 if level == "warning" else 0)
    assert f"  {level}: {found[0]['message']} [{found[0]['location']}]\n" in malflow("check", flow).out


@pytest.mark.parametrize("on", ["processes", "spark"])
def test_dataflow_that_other_processes_refuse(on: str, script: Script, malflow: Malflow) -> None:
    flow = script("""
        import threading
        lock = threading.Lock()
        def build_dataflow(provider):
            provider.new_stream().source("words", SingleIteratorSource(["a"])).inspect("see", lambda msg, _: lock)
        SingleThreadRuntime(build_dataflow).execute()
    """)
    done = malflow("check", flow, "--on", on)
    assert (done.code, done.out) == (3, "")
    assert "operator 'see' can't run" in done.err
    assert "flow.py:" in done.err


def test_transactional_sink_without_snapshots(script: Script, malflow: Malflow) -> None:
    flow = script("""
        from malflow.snapshot import FsspecBackend
        import malflow
        def build_dataflow(provider):
            words = provider.new_stream().source("words", SingleIteratorSource(["a"]))
            words.sink("out", malflow.connect("sqlite:///out.db/words?key=word"))
        SingleThreadRuntime(build_dataflow, persistence=FsspecBackend("kept")).execute()
    """)
    done = malflow("check", flow)
    assert done.code == 10, done.err
    assert "warning: sink 'out' commits with snapshots" in done.out
