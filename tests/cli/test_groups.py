"""The list of commands, those of other packages, the completion of shells, colours."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

import click
import pytest

from malflow.cli import cli
from malflow.cli.groups import LazyGroup
from malflow.cli.output.output import Output, is_colored
from malflow.cli.output.texts import write_table
from tests.cli.conftest import Malflow, environment

pytestmark = pytest.mark.slow


@click.command()
def hello() -> None:
    """Say hello."""
    click.echo("hello")


def groups() -> list[tuple[str, LazyGroup]]:
    """Return the groups of commands, with their names."""
    context = click.Context(cli)
    found = [("malflow", cli)]
    found += [(name, cli.get_command(context, name)) for name in cli.list_commands(context)]  # type: ignore[misc]
    return [(name, it) for name, it in found if isinstance(it, LazyGroup)]


@pytest.mark.parametrize(("name", "group"), groups())
def test_line_of_a_command_in_the_help_is_its_own(name: str, group: LazyGroup) -> None:
    for command, (place, line) in group._own.items():
        module, _, attribute = place.partition(":")
        assert getattr(import_module(module), attribute).short_help == line, f"{name} {command}"


@pytest.mark.parametrize(
    ("given", "near"), [("rnu", "run"), ("chek", "check"), ("grahp", "graph"), ("plugin", "plugins")]
)
def test_unknown_command(given: str, near: str, malflow: Malflow) -> None:
    done = malflow(given)
    assert (done.code, done.out) == (2, "")
    assert f"there is no command '{given}'; did you mean '{near}'?" in done.err
    document = json.loads(malflow(given, "--json").err)
    assert document["error"].keys() == {"kind", "message", "operator", "key", "location"}


def test_unknown_option_and_missing_argument(malflow: Malflow) -> None:
    done = malflow("run", "flow.py", "--persistance", "x")
    assert (done.code, "--persistence" in done.err) == (2, True)
    assert malflow("run").code == 2
    assert malflow("--nonsense").code == 2
    assert malflow().code == 2


def entries(monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
    found = [EntryPoint(name, place, "malflow.commands") for name, place in places.items()]
    monkeypatch.setattr("malflow.cli.groups.entry_points", lambda **_: found)


def test_command_of_another_package(monkeypatch: pytest.MonkeyPatch, malflow: Malflow) -> None:
    entries(monkeypatch, hello=f"{__name__}:hello", run=f"{__name__}:hello", broken="no.such:thing", no="json:loads")
    sys.modules.setdefault(__name__, sys.modules.get(__name__) or import_module(__name__))
    assert malflow("hello").out == "hello\n"
    listed = malflow("--help").out
    assert "From tests" in listed
    assert listed.count("\n  run ") == 1
    assert "Run a flow: a script" in malflow("run", "--help").out
    done = malflow("broken")
    assert (done.code, len(done.err.splitlines())) == (9, 1)
    assert "command 'broken' of no.such can't be loaded: ModuleNotFoundError" in done.err
    assert malflow("no").code == 9


def test_plugins(malflow: Malflow, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(group: str) -> Any:
        return [EntryPoint("file+csv", "json:loads", group), EntryPoint("kafka", "no.such:thing", group)][
            : 1 + (group != "malflow.sinks")
        ]

    monkeypatch.setattr("malflow.cli.commands.plugins.entry_points", found)
    documents = [json.loads(line) for line in malflow("plugins", "--json").out.splitlines()]
    assert [(it["name"], it["type"], it["loads"]) for it in documents[:2]] == [
        ("csv", "source of files", True),
        ("kafka", "source", False),
    ]
    for it in documents:
        assert it.keys() == {"malflow", "kind", "name", "type", "package", "version", "loads", "error"}
    assert "ModuleNotFoundError: No module named 'no'" in malflow("plugins").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, malflow: Malflow) -> None:
    text = malflow("completion", shell).out
    assert "_MALFLOW_COMPLETE" in text
    variables = {"_MALFLOW_COMPLETE": f"{shell}_complete", "COMP_WORDS": "malflow r", "COMP_CWORD": "1"}
    if shell == "fish":
        variables["COMP_CWORD"] = "r"
    done = subprocess.run(
        [sys.executable, "-m", "malflow"],
        capture_output=True,
        text=True,
        check=False,
        env={**environment(), **variables},
    )
    assert "run" in done.stdout


def test_colours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert not is_colored(sys.stdout)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert is_colored(sys.stdout)
    assert not is_colored(sys.stdout, "never")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_colored(sys.stdout)
    assert is_colored(sys.stdout, "always")
    write_table(["name", ">keys"], [["count\x1b[31m", "7"]], Output(color="always"))
    text = capsys.readouterr().out
    assert "\x1b[1m" in text
    assert "count\\x1b[31m" in text
    write_table(["name", ">keys"], [["count", "7"]], Output(color="never"))
    assert capsys.readouterr().out == "name   keys\ncount     7\n"


def test_errors_in_colour(malflow: Malflow) -> None:
    assert malflow("run", "none.py", "--color=always").err.startswith("\x1b[31merror:")
    assert malflow("run", "none.py", "--color=never").err.startswith("error:")
