"""The name of a job under ``malflow run``, and starts of a job that has a live run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Malflow, Script, environment
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.slow

PLAIN = "SingleThreadRuntime(build_dataflow).execute()"
LASTING = """
from datetime import timedelta
from malflow.sources import PeriodicSource

def build_lasting(provider):
    ticks = provider.new_stream().source("ticks", PeriodicSource(timedelta(seconds=0.01)))
    keyed = ticks.key_distribute("key", lambda msg: 1)
    keyed.stateful_map("count", lambda k, v, n: (n, n + 1), int).sink("out", VecSink())

SingleThreadRuntime(build_lasting).execute()
"""


def test_job_has_the_name_of_the_script(script: Script, malflow: Malflow) -> None:
    assert "running flow on one thread" in malflow("run", script(PLAIN), "--persistence", "state").err
    assert malflow("run", script(PLAIN, "other totals.py"), "--persistence", "state").code == 0
    assert sorted(it.name for it in Path("state").iterdir()) == ["flow", "other-totals"]
    assert "job flow, snapshot 2" in malflow("plan", "flow.py", "--persistence", "state").out


def test_job_named_default_is_continued(script: Script, malflow: Malflow) -> None:
    flow = script(PLAIN)
    malflow("run", flow, "--persistence", "state", "--job", "default")
    assert "resumed flow from snapshot 2" in malflow("run", flow, "--persistence", "state").err
    assert [it.name for it in Path("state").iterdir()] == ["default"]


def test_job_of_the_code_keeps_its_name(script: Script, malflow: Malflow) -> None:
    backend = "from malflow.snapshot import FsspecBackend\n"
    kept = "SingleThreadRuntime(build_dataflow, FsspecBackend('state')).execute()"
    assert malflow("run", script(backend + kept)).code == 0
    assert [it.name for it in Path("state").iterdir()] == ["default"]


@pytest.mark.parametrize(
    ("settings", "interval"),
    [
        (["persistence=state"], ["10s"]),
        (["persistence=state", "snapshots=5s"], ["5s"]),
        (["persistence=state", "snapshots=none"], ["none"]),
        (["persistence=none"], []),
    ],
)
def test_store_named_without_an_interval_gets_snapshots(
    settings: list[str], interval: list[str], script: Script, malflow: Malflow
) -> None:
    """Or a killed run would begin anew, and an exactly-once sink would write nothing until the end."""
    options = [it for setting in settings for it in ("--set", f"run.{setting}")]
    rows = [line.split() for line in malflow("config", "show", script(PLAIN), *options).out.splitlines()]
    assert [row[1] for row in rows if row[0] == "run.snapshots"] == interval


def test_interval_of_the_code_is_kept(script: Script, malflow: Malflow) -> None:
    kept = "SingleThreadRuntime(build_dataflow, FsspecBackend('state'), snapshots=timedelta(seconds=3)).execute()"
    flow = script(f"from datetime import timedelta\nfrom malflow.snapshot import FsspecBackend\n{kept}")
    assert "10s" not in malflow("config", "show", flow, "--set", "run.persistence=elsewhere").out


def test_refusal_of_another_programs_state_names_the_options(script: Script, malflow: Malflow) -> None:
    malflow("run", script(PLAIN), "--persistence", "state", "--job", "default")
    build = "lambda it: it.new_stream().source('n', SingleIteratorSource([1])).sink('o', StdOutSink())"
    text = f"SingleThreadRuntime({build}).execute()"
    done = malflow("run", script(text, "other.py"), "--persistence", "state")
    assert done.code == 6
    assert "--rename count=NEW if an operator was renamed" in done.err
    assert "--drop count if its state may be dropped" in done.err
    assert "choose another --job if the state is another program's" in done.err


@pytest.fixture
def lasting(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run that lasts, found by its control socket."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("MALFLOW_CONTROL")
    flow = script(LASTING.replace("from datetime", "from malflow.sinks import VecSink\nfrom datetime"))
    command = [sys.executable, "-m", "malflow", "run", flow, "--persistence", "state", "--snapshots", "0.1s"]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
    wait_until(lambda: any(Path("malflow").glob("*.sock")))
    wait_until(lambda: len(list(Path("state/flow/m").glob("*"))) > 1)
    yield run
    run.kill()
    run.communicate()


def test_start_does_not_end_a_live_run_unless_it_may(lasting: Any, malflow: Malflow) -> None:
    again = ("run", "flow.py", "--persistence", "state", "--count", 3)
    done = malflow(*again)
    assert done.code == 10
    assert f"(pid {lasting.pid}) of job 'flow' is alive" in done.err
    assert "or add --take-over" in done.err
    assert malflow("run", "flow.py", "--persistence", "state", "--job", "other", "--count", 3).code == 0
    done = malflow(*again, "--take-over")
    assert done.code == 0
    assert f"(pid {lasting.pid}), alive: it ends at its next snapshot" in done.err
    _, err = lasting.communicate(timeout=60)
    assert lasting.returncode == 7
    assert "don't start this one again" in err


def test_start_after_a_run_that_was_killed_needs_no_option(lasting: Any, malflow: Malflow) -> None:
    lasting.kill()
    lasting.wait()
    assert malflow("run", "flow.py", "--persistence", "state", "--count", 3).code == 0


def test_run_is_named_alike_by_its_log_and_by_ps_and_stop(lasting: Any, malflow: Malflow) -> None:
    assert malflow("ps").out.splitlines()[1].split()[0] == "flow"
    assert malflow("stop", "flow").code == 0
    _, err = lasting.communicate(timeout=60)
    assert err.startswith("running flow on one thread")
    assert "flow stopped after tick" in err


def test_drop_of_a_name_that_nothing_has_is_told(script: Script, malflow: Malflow) -> None:
    flow = script(PLAIN)
    malflow("run", flow, "--persistence", "state")
    done = malflow("run", flow, "--persistence", "state", "--drop", "cuont", "--drop", "count")
    assert done.code == 0
    assert "['cuont'] drops nothing: no state and no operator has this name" in done.err
    assert done.err.count("drops nothing") == 1


def test_misspelt_option_suggests_no_hidden_one(script: Script, malflow: Malflow) -> None:
    done = malflow("run", script(PLAIN), "--persistance", "state")
    assert "Did you mean '--persistence'?" in done.err
    assert "--default-persistence" not in done.err
