"""README and examples as a new user runs them: after `pip install .` in an empty environment, in an empty folder."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_readme import README, Program, programs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
TABLE = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
SECONDS = 300

EXTRA = re.compile(r"pip install 'malflow\[([a-z0-9,]+)\]'")
COMMAND = re.compile(r"^ +python (examples/\S+\.py.*)$", re.MULTILINE)
AWAY = re.compile(r"NewConnectionError|ConnectTimeout|Read timed out|name resolution|Connection refused")


def users_environment() -> dict[str, str]:
    """Return the environment without what a virtual environment, `make` or a tester sets."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MALFLOW", "VIRTUAL_ENV"))
    }


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**users_environment(), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def install(python: Path, *what: str) -> None:
    """Install by pip, or skip the test where no registry can be reached."""
    done = ran([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what], ROOT)
    if done.returncode and AWAY.search(done.stderr) and os.environ.get("CI") != "true":
        pytest.skip(f"pip cannot reach a registry: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a new environment with malflow's core in it."""
    folder = tmp_path_factory.mktemp("fresh") / "environment"
    ran([sys.executable, "-m", "venv", str(folder)], folder.parent).check_returncode()
    python = folder / "bin" / "python"
    install(python, ".")
    return python


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the examples, and nothing that could be imported beside them."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def extras_named(text: str) -> set[str]:
    return {extra for found in EXTRA.findall(text) for extra in found.split(",")}


def docstring(name: str) -> str:
    return ast.get_docstring(ast.parse(EXAMPLES[name].read_text(encoding="utf-8"))) or ""


def command_of(name: str) -> list[str]:
    """Return the arguments of the command that the docstring prints, or of the one for all."""
    printed = COMMAND.findall("\n" + docstring(name))
    return shlex.split(printed[0]) if printed else [f"examples/{name}.py"]


def check_missing(done: subprocess.CompletedProcess[str], extras: set[str]) -> None:
    """Check that a program has failed for the lack of one of the extras, with the command that brings it."""
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1, done.stderr
    assert last.startswith("malflow.errors.MissingDependency: ")
    assert extras_named(last), last
    assert extras_named(last) <= extras


def extras_of_block(program: Program) -> set[str]:
    needed = {
        "processes": "MultiProcessRuntime(" in program.text,
        "spark": program.needs_spark,
        "testing": "assert_exactly_once" in program.text,
    }
    return {extra for extra, is_needed in needed.items() if is_needed}


BLOCKS = programs(README)
OF_CORE = [name for name in EXAMPLES if not extras_named(docstring(name))]
OF_EXTRAS = [name for name in EXAMPLES if extras_named(docstring(name))]
WITHOUT_SERVERS = [name for name in OF_EXTRAS if len(command_of(name)) == 1 and name != "on_spark"]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
@pytest.mark.nightly
def test_each_block_of_the_readme_runs_alone(number: int, fresh: Path, tmp_path: Path) -> None:
    block = BLOCKS[number]
    (tmp_path / "program.py").write_text(block.text, encoding="utf-8")
    done = ran([str(fresh), "program.py"], tmp_path)
    if extras_of_block(block):
        check_missing(done, extras_of_block(block))
        return
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert block.prints in (None, done.stdout)


@pytest.mark.nightly
def test_the_command_is_installed_and_small(fresh: Path, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(BLOCKS[0].text, encoding="utf-8")
    done = ran([str(fresh.parent / "malflow"), "run", "flow.py"], tmp_path)
    assert (done.returncode, done.stdout) == (0, BLOCKS[0].prints)
    assert done.stderr.startswith("running flow on one thread")
    (packages,) = (fresh.parents[1] / "lib").glob("python*/site-packages")
    own = [it for it in packages.iterdir() if not it.name.startswith(("pip", "setuptools", "_distutils"))]
    files = [file for it in own for file in (it.rglob("*") if it.is_dir() else [it]) if file.suffix != ".pyc"]
    assert sum(file.stat().st_size for file in files if file.is_file()) < 20_000_000


@pytest.mark.parametrize("name", OF_CORE)
@pytest.mark.nightly
def test_each_example_runs_by_its_command(name: str, fresh: Path, clone: Path) -> None:
    done = ran([str(fresh), *command_of(name)], clone)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout or name == "basic_noop"


@pytest.mark.parametrize("name", OF_EXTRAS)
@pytest.mark.nightly
def test_an_example_without_its_extra_says_how_to_install_it(name: str, fresh: Path, clone: Path) -> None:
    check_missing(ran([str(fresh), *command_of(name)], clone), extras_named(docstring(name)))


@pytest.mark.parametrize("name", WITHOUT_SERVERS)
@pytest.mark.nightly
def test_an_example_with_its_extra_runs_by_its_command(name: str, clone: Path) -> None:
    done = ran([sys.executable, *command_of(name)], clone)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize(("extra", "page"), [("processes", ROOT / "docs/runtimes.md"), ("testing", README)])
@pytest.mark.nightly
def test_a_block_with_its_extra_runs_alone(extra: str, page: Path, tmp_path: Path) -> None:
    blocks = [it for it in programs(page) if extras_of_block(it) == {extra}]
    assert len(blocks) == 1
    (tmp_path / "program.py").write_text(blocks[0].text, encoding="utf-8")
    done = ran([sys.executable, "program.py"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def with_cron(fresh: Path) -> Iterator[Path]:
    """Install an extra as errors say; leave the environment without it."""
    install(fresh, "malflow[cron]")
    yield fresh
    ran([str(fresh), "-m", "pip", "uninstall", "--quiet", "--yes", "cronsim"], fresh.parent).check_returncode()


@pytest.mark.nightly
def test_an_extra_is_added_to_what_is_installed_from_any_folder(with_cron: Path, clone: Path) -> None:
    done = ran([str(with_cron), "examples/scheduled_reports.py"], clone)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_of_examples_names_the_extras_of_each() -> None:
    rows = {name: next(row for row in TABLE.splitlines() if f"({name}.py)" in row) for name in EXAMPLES}
    assert {name: extras_named(row) for name, row in rows.items()} == {
        name: extras_named(docstring(name)) for name in EXAMPLES
    }


COMMANDS = re.findall(r"^\$ (.+?)(?: +#.*)?$", README.read_text(encoding="utf-8"), re.MULTILINE)
"""The commands of the README's first five minutes."""


@pytest.fixture
def with_printed(fresh: Path) -> Iterator[Path]:
    """Install as the first command says; leave the environment without the extra."""
    [command] = [shlex.split(it) for it in COMMANDS if it.startswith("pip install ")]
    install(fresh, *command[2:])
    yield fresh
    extra = ["hypothesis", "sortedcontainers", "pytest"]
    ran([str(fresh), "-m", "pip", "uninstall", "--quiet", "--yes", *extra], fresh.parent).check_returncode()


@pytest.mark.nightly
def test_the_first_minutes_run_as_printed(with_printed: Path, tmp_path: Path) -> None:
    [made] = [it for it in COMMANDS if it.startswith("malflow new ")]
    [mended] = [it for it in COMMANDS if it.endswith("&& pytest")]
    script = f'export PATH="{with_printed.parent}:$PATH"\n{made.partition(" && malflow run")[0]} && {mended}'
    done = ran(["bash", "-c", script], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed in " in done.stdout
