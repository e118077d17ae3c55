"""The programs in the README and in docs/ run, and print the documented output; links have targets.

Those of the README run by themselves, those of a page of docs/ in order.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from malflow.sources import SingleIteratorSource
from tests.kit.extras import skipping

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
README_LINES = 200
LONG = {"docs/testing.md", "docs/runtimes.md"}
"""Pages whose programs search for crashes, and start processes."""

OF_SQL = ("sql", "sql_time", "coming_from_flink_sql")
"""Pages with blocks of several languages: tests/cli/test_sql_pages.py runs them."""

BLOCK = re.compile(r"^```([\w{} -]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
ANCHORED = re.compile(r"\]\(([^)#:]*)(?<!\.py)#([^)]+)\)")


@dataclass(frozen=True)
class Program:
    """A program of a page, and what it prints where the next block says so."""

    text: str
    prints: str | None

    @property
    def needs_s3(self) -> bool:
        return "ENDPOINT" in self.text

    @property
    def needs_spark(self) -> bool:
        return "SparkRuntime(" in self.text


def programs(page: Path) -> list[Program]:
    """Return the programs of a page; a `text` block right after one is what it prints."""
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    found = []
    for at, block in enumerate(blocks):
        if block[1] != "python":
            continue
        following = blocks[at + 1] if at + 1 < len(blocks) else None
        is_output = following and following[1] == "text" and not text[block.end() : following.start()].strip()
        found.append(Program(block[2], following[2] if following and is_output else None))
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if name_of(page) in LONG else (), id=name_of(page))
        for page in PAGES
        if programs(page) and page.stem not in OF_SQL
    ],
)
def test_programs_of_a_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [it for it in programs(page) if not it.needs_spark and not it.needs_s3]
    if page == README:  # the one that searches for crashes runs in tests/test_fresh_install.py
        found = [it for it in found if "assert_exactly_once" not in it.text]
    for together in [[program] for program in found] if page == README else [found]:
        run_programs(page, together, tmp_path, monkeypatch, capsys)


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in PAGES if any(it.needs_spark for it in programs(page))], ids=name_of)
@pytest.mark.nightly
def test_programs_on_spark_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: Any
) -> None:
    printed = run_programs(page, programs(page), tmp_path, monkeypatch, capsys)
    assert "{ key: 'once', value: 2, timestamp: " in printed


def run_programs(
    page: Path,
    found: list[Program],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """Run programs one after the other, in one namespace; return all that was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # for the files of runs that are monitored
    (tmp_path / "tale.txt").write_text("once upon a time\nonce more\n", encoding="utf-8")
    names: dict[str, Any] = {"__name__": "readme"}
    everything = ""
    for program in found:
        with skipping(name_of(page)):
            exec(compile(program.text, name_of(page), "exec"), names)  # noqa: S102 - our own text
        for name in [name for name in names if name.startswith("test_")]:
            names.pop(name)()
        printed = capsys.readouterr().out
        assert program.prints is None or printed == program.prints
        everything += printed
    return everything


def test_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= README_LINES


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def anchors(page: Path) -> set[str]:
    """Return the places of a page that a link can lead to: headings, named targets and elements with an id."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    return {*slugs, *re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE), *re.findall(r'<a id="([\w-]+)">', text)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_into_pages_lead_to_places_in_them(page: Path) -> None:
    for target, anchor in ANCHORED.findall(page.read_text(encoding="utf-8")):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def test_links_to_sections_that_left_the_guide_still_lead_to_it() -> None:
    left = {"state", "event-time", "timers", "running", "events", "running-in-the-background"}
    assert left <= anchors(ROOT / "docs" / "guide.md")


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the pages, the examples, the benchmarks and the modules of the package."""
    for path in [
        *PAGES,
        *(path for room in ("malflow", "examples", "benchmarks") for path in (ROOT / room).rglob("*")),
    ]:
        if path.suffix in (".py", ".md"):
            yield path, path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_commands_that_install_name_an_extra_and_stand_in_quotes() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for path, text in texts():
        for found in re.finditer(r"pip\s+install (?:-e )?(\S*?(?:malflow|\.)\[([a-z0-9_,]+)\]'?)", text):
            assert set(found[2].split(",")) <= extras, (path, found[0])
            assert re.fullmatch(r"'.*'", found[1]), (path, found[0])


def test_each_command_of_make_has_its_target() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = [*PAGES, ROOT / "CONTRIBUTING.md"]
    named = {it for page in pages for it in re.findall(r"(?:^|`)make (\w+)\b", page.read_text(), re.MULTILINE)}
    assert {"run", "test"} <= named <= targets


def test_error_in_readme_is_a_real_one(tmp_path: Path) -> None:
    texts = [block[2] for block in BLOCK.finditer(README.read_text(encoding="utf-8")) if block[1] == "text"]
    shown = " ".join(next(text for text in texts if "OperatorError" in text).split())
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


def test_rooms_on_the_map_are_those_of_the_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = page.split("malflow/\n", 1)[1].split("```", 1)[0]
    named = set(re.findall(r"\b([a-z_]+)(?:/|\.py)(?=[\s:])", shown))
    package = ROOT / "malflow"
    rooms = {path.stem for path in package.iterdir() if path.name[0] not in "_." and path.suffix in ("", ".py")}
    assert rooms - named == {"version"}
    assert all(any(package.rglob(name)) or any(package.rglob(f"{name}.py")) for name in named)


@pytest.mark.parametrize(
    "module",
    [
        "malflow",
        "malflow.agg",
        "malflow.windows",
        "malflow.sources",
        "malflow.sinks",
        "malflow.snapshot",
        "malflow.sql",
        "malflow.testing",
        "malflow.events",
        "malflow.monitor",
        "malflow.serve",
    ],
)
def test_reference_has_what_a_module_exports(module: str) -> None:
    documented = set(re.findall(rf"{module}\.(\w+)$", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE))
    assert set(import_module(module).__all__) - documented <= {"__version__"}


def test_the_readme_names_all_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = README.read_text(encoding="utf-8").partition("Everything else is an extra:")[2].partition(". In the")[0]
    assert {*re.findall(r"`(\w+)`", listed)} == {*project["optional-dependencies"]} - {"dev", "docs", "bench"}
