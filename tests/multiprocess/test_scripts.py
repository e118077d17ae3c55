"""Programs that are not written for several processes: scripts without a guard, from a file, a module or a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, MalflowError, OperatorError, StreamProvider
from malflow.sources import SingleIteratorSource
from tests.kit.nights import at_night
from tests.multiprocess.groups import DEADLINE, ROOT
from tests.multiprocess.runs import BOTH, Heard, processes, run_map, scripted

pytestmark = pytest.mark.slow

SCRIPT = """
import json
import sys
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import helper
from malflow import MultiProcessRuntime
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource

FACTOR = 2


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Town:
    name: str
    colour: Colour


@dataclass
class Sale:
    town: Town
    amount: int


class Total(NamedTuple):
    count: int = 0
    amount: int = 0


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, sale):
        return Sale(sale.town, self.factor * sale.amount)


TOWNS = [Town(name, colour) for name in ("Ulm", "Bonn") for colour in Colour]


def sale(number):
    return Sale(TOWNS[number % len(TOWNS)], number)


def town_of(message):
    assert isinstance(message.value.town, Town)
    return message.value.town


def add(town, sold, total):
    assert type(sold) is Sale
    assert type(total) is Total
    assert town.colour is sold.town.colour
    total = Total(total.count + 1, total.amount + sold.amount)
    return total, total


collected = VecSink()


def build(provider):
    sales = provider.new_stream().source("numbers", SingleIteratorSource(range(100))).map("sale", sale)
    scaled = sales.map("scaled", Scaled(FACTOR)).filter("all", helper.is_sale)
    scaled.key_distribute("town", town_of).stateful_map("total", add, Total).sink("out", collected)


backend = FsspecBackend(sys.argv[2]) if len(sys.argv) > 2 else None
options = {"persistence": backend} if backend else {}
MultiProcessRuntime(build, processes=2, start_method=sys.argv[1], restore=None, **options).execute()
totals = {it.key: it.value for it in collected}
assert set(totals) == set(TOWNS)
assert all(type(total) is Total for total in totals.values())
print(json.dumps({f"{town.name} {town.colour.value}": list(total) for town, total in totals.items()}))
"""

HELPER = """
def is_sale(value):
    return type(value).__name__ == "Sale"
"""

WAYS = {
    "script": ["job.py"],
    "script of another folder": ["scripts/job.py"],
    "module": ["-m", "job"],
    "module of a package": ["-m", "package.job"],
    "standard input": ["-"],
    "command": ["-c", SCRIPT],
}

TOTALS = {
    name: [25, sum(2 * number for number in range(place, 100, 4))]
    for place, name in enumerate(["Ulm red", "Ulm blue", "Bonn red", "Bonn blue"])
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("", "scripts", "package"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "job.py").write_text(SCRIPT)
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "scripts" / "helper.py").write_text(HELPER)
    return tmp_path


def run_script(folder: Path, *arguments: str, script: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        input=script,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=DEADLINE,
    )


@pytest.mark.parametrize(
    ("way", "method"),
    at_night(product(WAYS, BOTH), but=[("script", "forkserver"), ("standard input", "spawn"), ("command", "spawn")]),
)
def test_a_script_without_a_guard_runs(folder: Path, way: str, method: str) -> None:
    done = run_script(folder, *WAYS[way], method, str(folder / "state"), script=SCRIPT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == TOTALS


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.nightly
def test_a_script_runs_only_once(folder: Path, method: str) -> None:
    (folder / "job.py").write_text(f"import os\nos.write(2, b'here')\n{SCRIPT}")
    done = run_script(folder, "job.py", method)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("here") == 1


@pytest.mark.nightly
def test_a_script_may_change_its_folder_and_path(folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (folder / "helper.py").rename(elsewhere / "helper.py")
    changes = f"import os, sys\nos.chdir({str(elsewhere)!r})\nsys.path.insert(0, '')\n"
    (folder / "job.py").write_text(changes + SCRIPT)
    for method in ("spawn", "forkserver"):
        done = run_script(folder, "job.py", method)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == TOTALS


# What can't travel


def test_a_function_that_holds_a_lock_is_refused_before_the_run() -> None:
    lock, heard = threading.Lock(), Heard()

    def locked(value: int) -> int:
        with lock:
            return value

    with pytest.raises(
        GraphError, match="operator 'map' can't run in worker processes: TypeError: cannot pickle"
    ) as it:
        run_map(locked, listeners=[heard])
    assert it.value.operator == "map"
    assert heard.events == []


class Unreadable:
    """An object whose pickle can't be read."""

    def __reduce__(self) -> Any:
        return _fail_to_read, ()


def _fail_to_read() -> None:
    raise LookupError("it is lost")


def test_a_function_that_a_worker_cannot_read_is_an_error_that_says_so() -> None:
    unreadable = Unreadable()

    def mapper(value: int) -> int:
        assert unreadable is not None
        return value

    with pytest.raises(GraphError, match="the dataflow can't be read by a worker process: LookupError: it is lost"):
        run_map(mapper)


class UnreadableKey(Unreadable):
    """A key whose pickle can't be read.

    Args:
        number: its number.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnreadableKey) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __stable_key__(self) -> int:
        return self.number


@pytest.mark.parametrize("place", ["value", "key"])
def test_a_record_that_another_process_cannot_read_is_named(place: str) -> None:
    is_key = place == "key"

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(20)))
        made = numbers.map("make", lambda number: (number, None if is_key else Unreadable()))
        keyed = made.key_distribute("key", lambda msg: UnreadableKey(msg.value[0]) if is_key else msg.value[0])
        keyed.stateful_map("count", lambda _key, _value, count: (count + 1, count + 1), int)

    expected = (
        rf"operator '\w+' failed at key .* its {place} .* can't be read in another process: LookupError: it is lost"
    )
    with pytest.raises(OperatorError, match=expected):
        processes(build).execute()


def test_a_state_that_another_process_cannot_read_is_named() -> None:
    def build(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("numbers", scripted(range(4))).key_distribute("key", lambda msg: msg.value)
        keyed.stateful_map("keep", lambda _key, value, _state: (value, Unreadable()), int)

    runtime = processes(build)
    runtime.rescale(3)
    with pytest.raises(MalflowError, match=r"operator 'keep' .*LookupError: it is lost"):
        runtime.execute()
