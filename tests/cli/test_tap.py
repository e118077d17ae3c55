"""``malflow run --tap``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import Malflow, Script, environment

FLOW = """
    from malflow import DataMessage

    def mask(message):
        return DataMessage(message.key, "***", message.timestamp)

    SingleThreadRuntime(build_dataflow).execute()
"""


def test_records_as_json_lines(malflow: Malflow, script: Script) -> None:
    script(FLOW)
    done = malflow("run", "flow.py", "--tap", "count", "--tap", "out", "--json")
    assert done.code == 0
    records = [json.loads(line) for line in done.out.splitlines() if line.startswith('{"malflow"')]
    assert {it["kind"] for it in records} == {"record"}
    counts = [(it["key"], it["value"]) for it in records if it["operator"] == "count"]
    assert counts == [("'a'", "1"), ("'b'", "1"), ("'a'", "2")]
    assert counts == [(it["key"], it["value"]) for it in records if it["operator"] == "out"]


def test_redacted(malflow: Malflow, script: Script) -> None:
    script(FLOW)
    done = malflow("run", "flow.py", "--tap", "words", "--set", "serve.redact=flow:mask")
    assert done.code == 0
    assert done.out.count("'***'") == 3
    for wrong, reason in (
        ("flow:masc", "no attribute 'masc'"),
        ("flow", "module:function"),
        ("flow:__name__", "not a function"),
    ):
        failed = malflow("run", "flow.py", "--tap", "words", "--set", f"serve.redact={wrong}")
        assert (failed.code, failed.out) == (4, ""), wrong
        assert reason in failed.err, wrong
        assert "serve.redact" in failed.err


def test_at_most_so_many_a_second(malflow: Malflow, script: Script) -> None:
    script(
        FLOW.replace("build_dataflow)", "many)").replace(
            "    def mask",
            """
    def many(provider):
        provider.new_stream().source("n", SingleIteratorSource(range(5000))).map("next", lambda it: it + 1)

    def mask""",
        )
    )
    done = malflow("run", "flow.py", "--tap", "next")
    assert done.code == 0
    shown = len(done.out.splitlines())
    assert 100 <= shown < 1000
    assert f"{5000 - shown:,} records of operator 'next' were left out" in done.err


def test_operators_that_can_not_be_tapped(malflow: Malflow, script: Script) -> None:
    script(FLOW)
    unknown = malflow("run", "flow.py", "--tap", "cuont")
    assert unknown.code == 2
    assert "did you mean 'count'" in unknown.err
    elsewhere = malflow("run", "flow.py", "--tap", "count", "--on", "processes")
    assert elsewhere.code == 2
    assert "--on single" in elsewhere.err


@pytest.mark.fault("T4")
@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_run(script: Script) -> None:
    script("""
    import itertools, time
    def slow():
        for number in itertools.count():
            time.sleep(0.005)
            yield number
    def endless(provider):
        provider.new_stream().source("n", SingleIteratorSource(slow())).map("next", lambda it: it + 1)
    SingleThreadRuntime(endless).execute()
    """)
    command = [sys.executable, "-m", "malflow", "run", "flow.py", "--tap", "next"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["value"] == "1"
        process.stdout.close()
        told = process.stderr.read()
        assert process.wait(60) == 141
    assert "Traceback" not in told
    assert "stopped after tick" in told
