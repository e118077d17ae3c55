"""Measure a newcomer's first minute in a fresh environment: the install, the import, the first row; print one table.

It builds the wheel of this repository and installs it with pip, so it needs a package index.

Run it: ``python benchmarks/first_minute.py [--rounds 15]``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import IO, cast

from tables import print_table

_REPOSITORY = Path(__file__).parent.parent
_MOST_MEGABYTES = 20
_LONGEST_IMPORT_MS = 150
_MOST_MODULES = 140
_PEERS = {"bytewax": "import bytewax.dataflow", "quixstreams": "import quixstreams"}
_LONGEST_FIRST_ROW_MS = 1_000

_FLOW = """\
from malflow import SingleThreadRuntime
from malflow.sinks import StatelessSink, StdOutSink
from malflow.sources import SingleIteratorSource, StatelessSource
def build_dataflow(provider):
    source = StatelessSource(SingleIteratorSource(["to", "be", "or", "not"]))
    words = provider.new_stream().source("words", source).map("upper", str.upper)
    words.sink("stdout", StatelessSink(StdOutSink()))
SingleThreadRuntime(build_dataflow).execute()
"""

_ROWS = "".join(
    f"{{ key: NoKey, value: {word!r}, timestamp: {at} }}\n" for at, word in enumerate(("TO", "BE", "OR", "NOT"))
)

_TEST = """\
import pathlib, runpy
def test_flow(capfd):
    runpy.run_path("flow.py")
    out, err = capfd.readouterr()
    assert (out, err) == (pathlib.Path("rows.txt").read_text(), "")
"""

_NOTEBOOK = """\
import nbformat
from nbclient import NotebookClient
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(open("flow.py").read())])
NotebookClient(notebook, timeout=60).execute()
outputs = notebook.cells[0].outputs
assert {output.get("name") for output in outputs} == {"stdout"}, outputs
assert "".join(output.text for output in outputs) == open("rows.txt").read(), outputs
"""

_SIZES = """\
from importlib.metadata import distributions
for dist in distributions():
    size = sum(file.locate().stat().st_size for file in dist.files if file.locate().is_file())
    heavy = sum(file.suffix == ".jar" for file in dist.files)
    print(dist.name, dist.version, size, heavy)
"""

_MODULES = "import sys, malflow; print(sum(it.partition('.')[0] == 'malflow' for it in sys.modules))"
_START, _DOOR = "pass", "from malflow import StreamProvider"
_ROOMS = f"{_DOOR}; import malflow.sources, malflow.sinks"

Row = tuple[str, str, str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="how often each start is timed")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = _install(folder)
        (folder / "flow.py").write_text(_FLOW)
        (folder / "rows.txt").write_text(_ROWS)
        rows = [
            _measure_install(python),
            _count_modules(python),
            *_measure_imports(python, rounds),
            *_measure_peers(folder, rounds),
            _measure_first_row(python, folder, rounds),
            _run_in_test(python, folder),
            _run_in_notebook(python, folder),
        ]
        slowest = _slowest_imports(python)
    print_table(("what", "measured", "target", "met"), rows)
    print("\nthe modules that took longest to import, without those they import themselves:")
    print("\n".join(slowest))


def _install(folder: Path) -> Path:
    """Build the wheel, install it as a newcomer would, and return the environment's Python."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    _pip(python, "wheel", "--no-deps", "--wheel-dir", str(folder), str(_REPOSITORY))
    (wheel,) = folder.glob("malflow-*.whl")
    _pip(python, "install", str(wheel))
    return python


def _measure_install(python: Path) -> Row:
    listed = [line.split() for line in _run(python, "-c", _SIZES).stdout.splitlines()]
    brought = [entry for entry in listed if entry[0] not in ("pip", "setuptools")]
    size = sum(int(entry[2]) for entry in brought) / 1e6
    heavy = any(int(entry[3]) or entry[0] in ("pyspark", "py4j") for entry in brought)
    names = ", ".join(f"{name} {version} {int(size) / 1e6:.1f} MB" for name, version, size, _ in sorted(brought))
    met = size < _MOST_MEGABYTES and not heavy
    return "`pip install malflow` brings", f"{size:.1f} MB: {names}", f"< {_MOST_MEGABYTES} MB, no Java", _met(met)


def _count_modules(python: Path) -> Row:
    found = int(_run(python, "-c", _MODULES).stdout)
    return f"`{_DOOR}` loads", f"{found} modules of malflow", f"<= {_MOST_MODULES}", _met(found <= _MOST_MODULES)


def _measure_peers(folder: Path, rounds: int) -> list[Row]:
    """Time the imports of other stream processors for Python, in an environment of their own."""
    venv.create(folder / "peers", with_pip=True)
    python = folder / "peers" / "bin" / "python"
    _pip(python, "install", *_PEERS)
    start, added = _import_times(python, rounds, *_PEERS.values())
    return [(f"`{code}` adds to Python's own {start:.0f} ms", f"{ms:.0f} ms", "", "") for code, ms in added.items()]


def _import_times(python: Path, rounds: int, *codes: str) -> tuple[float, dict[str, float]]:
    """Return the milliseconds of Python's own start, and those that each import adds, asked in turn."""
    times: dict[str, list[float]] = {code: [] for code in (_START, *codes)}
    for code in times:
        _run(python, "-c", code)
    for _ in range(rounds):
        for code, taken in times.items():
            taken.append(_milliseconds(lambda code=code: _run(python, "-c", code)))
    start = median(times[_START])
    return start, {code: median(times[code]) - start for code in codes}


def _measure_imports(python: Path, rounds: int) -> list[Row]:
    start, added = _import_times(python, rounds, _DOOR, _ROOMS)
    return [
        (
            f"`{code}` adds to Python's own {start:.0f} ms",
            f"{ms:.0f} ms",
            f"<= {_LONGEST_IMPORT_MS} ms",
            _met(ms <= _LONGEST_IMPORT_MS),
        )
        for code, ms in added.items()
    ]


def _measure_first_row(python: Path, folder: Path, rounds: int) -> Row:
    """Time from the start of the process to its first line on a pipe, and check all that it prints."""
    times = [_first_row(python, folder) for _ in range(rounds)]
    ms = median(times)
    return (
        f"`python flow.py`, {len(_FLOW.splitlines())} lines, to its first row; nothing but rows",
        f"{ms:.0f} ms, at most {max(times):.0f} ms",
        f"< {_LONGEST_FIRST_ROW_MS} ms",
        _met(ms < _LONGEST_FIRST_ROW_MS),
    )


def _first_row(python: Path, folder: Path) -> float:
    start = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - our own script
        [python, "flow.py"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        stdout, stderr = cast("IO[str]", process.stdout), cast("IO[str]", process.stderr)
        first = stdout.readline()
        taken = (time.perf_counter() - start) * 1e3
        rest, errors = stdout.read(), stderr.read()
    if (first + rest, errors, process.returncode) != (_ROWS, "", 0):
        raise SystemExit(f"flow.py printed more or less than its rows: {first + rest!r} and {errors!r}")
    return taken


def _run_in_test(python: Path, folder: Path) -> Row:
    _pip(python, "install", "pytest")
    (folder / "test_flow.py").write_text(_TEST)
    summary = _run(python, "-m", "pytest", "-q", "-W", "error", "test_flow.py", folder=folder).stdout.splitlines()[-1]
    return "the same script in a pytest test", summary, "passes", _met(summary.startswith("1 passed"))


def _run_in_notebook(python: Path, folder: Path) -> Row:
    _pip(python, "install", "nbclient", "nbformat", "ipykernel")
    _run(python, "-c", _NOTEBOOK, folder=folder)
    return "the same script in a notebook's cell (nbclient, ipykernel)", "only its rows", "only its rows", "yes"


def _slowest_imports(python: Path) -> Sequence[str]:
    """List the five modules that took longest by themselves, of those that Python alone does not import."""
    own, door = (_run(python, "-X", "importtime", "-c", code).stderr for code in (_START, _ROOMS))
    pattern = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")
    known = {module for _, module in pattern.findall(own)}
    added = [(int(us), module) for us, module in pattern.findall(door) if module not in known]
    return [f"  {us / 1e3:5.1f} ms  {module}" for us, module in sorted(added, reverse=True)[:5]]


def _run(python: Path, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python in the fresh environment.

    Raises:
        SystemExit: if it fails, with what it said.
    """
    done = subprocess.run(  # noqa: S603 - our own code
        [python, *arguments], cwd=folder or python.parent, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{arguments} failed:\n{done.stdout}\n{done.stderr}")
    return done


def _pip(python: Path, *arguments: str) -> None:
    _run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def _milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def _met(target_met: bool) -> str:
    return "yes" if target_met else "NO"


if __name__ == "__main__":
    sys.exit(main())
