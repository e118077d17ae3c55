"""Every program in the README runs, and prints what the README says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from malflow.sources import SingleIteratorSource

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]


NEEDS_SPARK = [program for program in PROGRAMS if "SparkRuntime" in program]


@pytest.mark.parametrize("program", [it for it in PROGRAMS if it not in NEEDS_SPARK], ids=lambda text: text[:40])
def test_each_program_runs(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_program(program, tmp_path, monkeypatch)


@pytest.mark.spark
@pytest.mark.parametrize("program", NEEDS_SPARK, ids=lambda text: text[:40])
def test_each_program_on_spark_runs(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: Any
) -> None:
    run_program(program, tmp_path, monkeypatch)
    assert "{ key: 'once', value: 2, timestamp: " in capsys.readouterr().out


def run_program(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tale.txt").write_text("once upon a time\nonce more\n", encoding="utf-8")
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(program, "README.md", "exec"), names)  # noqa: S102 - our own text
    for name, thing in list(names.items()):
        if name.startswith("test_"):
            thing()


def test_the_first_program_prints_what_follows_it(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(PROGRAMS[0], "README.md", "exec"), {})  # noqa: S102 - our own text
    expected = next(text for language, text in BLOCKS if language == "text")
    assert capsys.readouterr().out == expected


def test_the_error_shown_reads_as_a_real_one(tmp_path: Path) -> None:
    shown = " ".join([text for language, text in BLOCKS if language == "text"][1].split())
    flow = tmp_path / "flow.py"
    lines = [
        "from malflow import OperatorError, SingleThreadRuntime",
        *[""] * 12,
        "mean = lambda pair: pair[1] / pair[0]",
    ]
    flow.write_text("\n".join(lines), encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(flow.read_text(encoding="utf-8"), "flow.py", "exec"), names)  # noqa: S102 - our own text
    rows = [("UA", (1, 1))] * 417 + [("UA", (0, 12))]

    def build_dataflow(provider: Any) -> None:
        rows_in = provider.new_stream().source("rows", SingleIteratorSource(rows))
        keyed = rows_in.key_distribute("carrier", lambda msg: msg.value[0])
        keyed.map("pair", lambda row: row[1]).map("mean", names["mean"])

    with pytest.raises(names["OperatorError"]) as caught:
        names["SingleThreadRuntime"](build_dataflow).execute()
    assert f"malflow.errors.OperatorError: {caught.value}" == shown


def test_every_room_on_the_map_exists() -> None:
    root = Path(__file__).parents[1]
    rooms = next(text for _, text in BLOCKS if text.startswith("malflow/"))
    for name in re.findall(r"[a-z_]+\.py", rooms):
        assert (root / "malflow" / name).is_file()
    for name in re.findall(r"([a-z_]+)/", rooms):
        assert (
            (root / name).is_dir()
            or (root / "malflow" / name).is_dir()
            or (root / "tests" / name).is_dir()
            or (root / "examples" / name).is_dir()
        ), name
