"""The configuration of commands: its layers over a script, and ``malflow config``."""

from __future__ import annotations

import json
import logging
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from malflow.config import schema
from tests.cli.conftest import HEAD, ROOT, Done, Malflow, Script

pytestmark = pytest.mark.slow

RUN = "SingleThreadRuntime(build_dataflow).execute()"

SEEN = """
import malflow
def build_dataflow(provider: StreamProvider) -> None:
    rows = provider.new_stream().source("orders", malflow.connect("towns.csv"))
    rows.inspect("show", lambda msg, ctx: print(msg.value["town"], len(ctx.workers)))

"""
"""A script that prints towns and the number of workers."""

PROJECT = """
[run]
parallelism = 2
[persistence]
retain = 3
[profile.prod.run]
parallelism = 3
persistence = "${PLACE}"
job = "towns"
[profile.prod.persistence]
signing_key = "${TOWNS_KEY}"
[profile.prod.operators.orders]
url = "prod.csv"
"""


@pytest.fixture
def project(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a project with a profile into a folder below the current one; return its script."""
    monkeypatch.setenv("PLACE", str(tmp_path / "kept"))
    monkeypatch.setenv("TOWNS_KEY", "hush-hush-hush-hush")
    (tmp_path / "project").mkdir()
    Path("project/malflow.toml").write_text(PROJECT)
    Path("towns.csv").write_text("town\nUlm\n")
    Path("prod.csv").write_text("town\nKiel\n")
    return script(f"{SEEN}if __name__ == '__main__':\n    {RUN}", "project/flow.py")


LAYERS = [
    ([], {}, "3", "malflow.toml:7 [profile.prod]   over 2 malflow.toml:3"),
    ([], {"MALFLOW_RUN__PARALLELISM": "4"}, "4", "MALFLOW_RUN__PARALLELISM   over 3 malflow.toml:7 [profile.prod], 2 "),
    (["--set", "run.parallelism=5"], {"MALFLOW_RUN__PARALLELISM": "4"}, "5", "--set run.parallelism   over 4 MALFLOW"),
]


@pytest.mark.parametrize(("options", "env", "workers", "place"), LAYERS)
def test_run_has_what_config_shows(
    options: list[str],
    env: dict[str, str],
    workers: str,
    place: str,
    project: Path,
    malflow: Malflow,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MALFLOW_PROFILE", "prod")
    shown = malflow("config", "show", project, *options)
    assert (shown.code, shown.err) == (0, "")
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in shown.out.splitlines()}
    assert lines["run.parallelism"].split()[0] == workers
    assert place in lines["run.parallelism"].replace("project/", "")
    done = malflow("run", project, *options)
    assert (done.code, done.out) == (0, f"Kiel {workers}\n"), done.err
    assert f"running towns on one thread, {workers} workers, state in kept/" in done.err


def test_option_of_a_command_hides_all_others(project: Path, malflow: Malflow) -> None:
    options = ["--profile", "prod", "--parallelism", "6", "--job", "mine"]
    done = malflow("run", project, *options)
    assert (done.code, done.out) == (0, "Kiel 6\n")
    assert "running mine on one thread" in done.err
    both = malflow("run", project, *options, "--set", "run.job=x")
    assert (both.code, "--job and --set run.job are the same setting" in both.err) == (2, True)


def test_named_file(script: Script, malflow: Malflow) -> None:
    flow = script(RUN)
    Path("other.toml").write_text("[run]\nparallelism = 2\n")
    Path("malflow.toml").write_text("[run]\nparallelism = 3\n")
    assert "2 workers" in malflow("run", flow, "--config", "other.toml").err
    Path("malflow.toml").unlink()
    Path("pyproject.toml").write_text("[tool.malflow.run]\nparallelism = 4\n")
    assert "4 workers" in malflow("run", flow).err
    done = malflow("run", flow, "--config", "none.toml")
    assert (done.code, done.out) == (4, "")
    assert "none.toml: the file can't be read: No such file" in done.err


def test_configuration_is_for_each_run_of_a_script(script: Script, malflow: Malflow) -> None:
    Path("malflow.toml").write_text("[run]\non = 'single'\nparallelism = 2\n")
    flow = script(f"{RUN}\nMultiProcessRuntime(build_dataflow, parallelism=5).execute()")
    done = malflow("run", flow)
    assert done.code == 0
    assert done.err.count("running flow on one thread, 2 workers") == 2


@pytest.mark.parametrize("command", [("run",), ("check",), ("graph",), ("config", "show"), ("config", "check")])
def test_fault_ends_each_command_before_the_script_runs(
    command: tuple[str, ...], script: Script, malflow: Malflow
) -> None:
    Path("malflow.toml").write_text(
        "[run]\nparalelism = 4\nsnapshots = 'soon'\n[persistence]\nsigning_key = 'hush-hush-hush-hush'\n"
    )
    done = malflow(*command, script(f"print('ran')\n{RUN}"))
    assert (done.code, done.out) == (4, "")
    assert done.err.splitlines() == [
        "error: 3 faults:",
        "malflow.toml:2: run.paralelism is not a setting; did you mean 'parallelism'?",
        "malflow.toml:3: run.snapshots needs a time such as 500ms, 30s, 5m, 2h, 1d, or none; got 'soon'",
        "malflow.toml:5: persistence.signing_key has a secret that is written in the file; "
        'write "${NAME}" or { file = "..." }',
    ]


OF_THE_FLOW = [
    ("operators.ordrs.url=x.csv", "the program has no operator 'ordrs'; did you mean 'orders'?"),
    ("operators.show.url=x.csv", "operator 'show' is neither a source nor a sink"),
    ("operators.orders.url=x.nothing", "no connector for files of format"),
    ("operators.orders.options.delimitr=x", "did you mean 'delimiter'?"),
    ("run.at_end=keep", "run.at_end is pinned by the code at flow.py:18"),
    ("spark.trigger=1s", "spark.trigger has no effect on a SingleThreadRuntime"),
    ("run.snapshots=1s", "run.snapshots needs a store of snapshots, but none is given; set run.persistence"),
    ("run.job=x", "run.job needs a store of snapshots"),
    ("run..debug=yes", "a setting is written table.name"),
    ("run.parallelism=many", "run.parallelism needs an integer, or none; got 'many'"),
]


@pytest.mark.parametrize(("setting", "message"), OF_THE_FLOW)
def test_fault_that_only_the_flow_shows(setting: str, message: str, script: Script, malflow: Malflow) -> None:
    flow = script(f"{SEEN}SingleThreadRuntime(build_dataflow, pinned=['at_end']).execute()")
    key = setting.partition("=")[0]
    for command in (("run",), ("config", "check")):
        done = malflow(*command, flow, "--set", setting)
        assert (done.code, done.out) == (4, ""), command
        assert len(done.err.splitlines()) == 1
        assert done.err.startswith(f"error: --set {key}: ")
        assert message in done.err


def test_source_of_the_code_that_has_no_url(script: Script, malflow: Malflow) -> None:
    done = malflow("check", script(RUN), "--set", "operators.words.url=x.csv", "--json")
    error = json.loads(done.err)["error"]
    assert (done.code, error["kind"]) == (4, "ConfigError")
    assert (error["key"], error["location"]) == ("operators.words", "--set operators.words.url")
    assert "the code at flow.py:7 does not make 'words' by connect()" in error["message"]


def test_all_faults_of_a_flow_at_once(script: Script, malflow: Malflow) -> None:
    flow = script("SingleThreadRuntime(build_dataflow, pinned=['at_end']).execute()")
    settings = ["run.at_end=keep", "spark.trigger=1s", "operators.x.url=a.csv", "operators.count.url=a.csv"]
    settings += ["operators.words.url=a.csv", "operators.out.url=a.csv"]
    done = malflow("config", "check", flow, "--json", *(it for pair in settings for it in ("--set", pair)))
    document = json.loads(done.out)
    assert (done.code, done.err, document["kind"]) == (4, "", "config_check")
    assert [it["origin"] for it in document["faults"]] == [f"--set {it.partition('=')[0]}" for it in settings]


def test_shown_forms(project: Path, malflow: Malflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.parent)

    def shown(*form: str) -> Done:
        return malflow("config", "show", "flow.py", "--profile", "prod", *form)

    forms = {"": shown(), "json": shown("--json"), "toml": shown("--toml")}
    assert {it.code for it in forms.values()} == {0}
    assert not any("hush" in it.out + it.err for it in forms.values())
    assert "persistence.signing_key  *** " in forms[""].out
    document = json.loads(forms["json"].out)
    assert document.keys() == {"malflow", "kind", "file", "profile", "settings", "warnings"}
    values = {it["key"]: it["value"] for it in document["settings"]}
    assert (values["run.parallelism"], values["persistence.signing_key"], values["run.restore"]) == (3, "***", "latest")
    written = tomllib.loads(forms["toml"].out)
    assert written["operators"] == {"orders": {"url": "prod.csv"}}
    assert "signing_key" not in written["persistence"]
    assert "run.restore" not in forms[""].out
    assert "run.restore" in malflow("config", "show", "--all").out
    assert malflow("config", "show", "--toml", "--json").code == 2


def test_nothing_runs_and_nothing_is_written(project: Path, malflow: Malflow, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    for command in (["show"], ["check"]):
        done = malflow("config", *command, project, "--profile", "prod")
        assert done.code == 0
        assert "Kiel" not in done.out
    assert done.out == "project/malflow.toml with profile 'prod': 6 settings, no mistakes\n"
    assert sorted(it for it in tmp_path.rglob("*") if "__pycache__" not in it.parts) == before


def test_this_folder(script: Script, malflow: Malflow) -> None:
    Path("malflow.toml").write_text("[run]\nparallelism = 2\n")
    assert malflow("config", "show").out == "run.parallelism  2  malflow.toml:2\n"
    done = malflow("config", "check", "--json")
    assert (done.code, json.loads(done.out)) == (0, {"malflow": 1, "kind": "config_check", "faults": []})
    assert json.loads(malflow("config", "schema").out) == json.loads(json.dumps(schema()))
    flow = script("import sys\nassert sys.argv[1:] == ['--day', 'monday']\n" + RUN)
    assert malflow("config", "show", flow, "--", "--day", "monday").code == 0


def test_code_is_shown_with_its_place(script: Script, malflow: Malflow) -> None:
    flow = script("for workers in (4, 5):\n    SingleThreadRuntime(build_dataflow, parallelism=workers).execute()")
    place = f"flow.py:{len(HEAD.splitlines()) + 2}"
    assert malflow("config", "show", flow).out == f"run.parallelism  4  code {place}\n"
    assert malflow("config", "show", flow, "--call", 2).out == f"run.parallelism  5  code {place}\n"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ["--set", "run.parallelism"],
            2,
            "'run.parallelism' must be a setting and its value, such as run.parallelism=8",
        ),
        (["--set", '"a=b'], 2, "must be a setting and its value"),
        (["--set", 'operators."a=b".url=x.csv'], 4, "the program has no operator 'a=b'"),
        (["--set", "run.persistence=a=b"], 0, "state in a=b"),
        (["--profile", "prd"], 4, "there is no profile 'prd'"),
    ],
)
def test_setting_on_the_command_line(
    options: list[str], code: int, message: str, script: Script, malflow: Malflow
) -> None:
    done = malflow("run", script(RUN), *options)
    assert done.code == code, done.err
    assert message in done.err


def test_variable_that_is_not_known(script: Script, malflow: Malflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALFLOW_PROFIL", "prod")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest would count as the script's own
    for command in ("run", "check"):
        done = malflow(command, script(RUN))
        assert done.code == 0
        hint = "did you mean MALFLOW_PROFILE?"
        assert f"warning: MALFLOW_PROFIL: is not a variable of malflow; {hint}" in done.err


def test_project_of_the_page(script: Script, malflow: Malflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOWNS_KEY", "hush-hush-hush-hush")
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    section = page.partition("\n## On the command line\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    for language, text in blocks[:2]:
        assert language in ("python", "toml")
        script("", text.partition("\n")[0].removeprefix("# "), text)
    for (_, commands), (_, written) in zip(blocks[2::2], blocks[3::2], strict=True):
        done = [malflow(*shlex.split(line)[1:]) for line in commands.splitlines()]
        assert "".join(it.out + it.err for it in done) == written
    Path("all_towns.csv").write_text("town\nKiel\n")
    assert malflow("run", "towns.py", "--profile", "prod").out == "Kiel\n"
