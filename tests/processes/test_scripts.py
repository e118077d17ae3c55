"""States of a script's own classes: read where the script is imported, run as a module, or a script again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.children import DEADLINE, ROOT

pytestmark = pytest.mark.slow

JOB = """
import sys
from dataclasses import dataclass
from typing import NamedTuple

from malflow import SingleThreadRuntime
from malflow.snapshot import FsspecBackend, MsgpackCodec
from malflow.sources import SingleIteratorSource


class Inner(NamedTuple):
    n: int{field}


@dataclass
class Acc:
    inner: Inner


def count(key, value, state):
    assert state is None or (type(state) is Acc and type(state.inner) is Inner), (type(state), __name__)
    return value, Acc(Inner(1 if state is None else state.inner.n + 1))


def build(provider):
    numbers = provider.new_stream().source("numbers", SingleIteratorSource([0]))
    numbers.key_distribute("all", lambda msg: 0).stateful_map("count", count)


def main():
    codec = MsgpackCodec({{"acc": Acc, "inner": Inner}}) if sys.argv[-1] == "msgpack" else "pickle"
    backend = FsspecBackend("state", codec=codec, growth=1e9)
    SingleThreadRuntime(build, backend).execute()
    from malflow.snapshot.restore import load

    manifest_log = backend.manifest_log()
    manifest_log.find()
    manifest = list(manifest_log.manifests())[-1]
    state = load(manifest_log, manifest, backend.codec, {{"count": "count"}}).states["count"][0][0]
    assert isinstance(state, Acc)
    print(state.inner.n)


if __name__ == "__main__":
    main()
"""

WAYS = {
    "script": ["job.py"],
    "module": ["-m", "job"],
    "imported": ["-c", "import job; job.main()"],
    "script of a package": ["pkg/job.py"],
    "module of a package": ["-m", "pkg.job"],
    "imported from a package": ["-c", "import pkg.job; pkg.job.main()"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(JOB.format(field=""))
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "job.py").write_text(JOB.format(field=""))
    return tmp_path


def run(folder: Path, way: str, codec: str = "pickle") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(ROOT), str(folder)))
    return subprocess.run(
        [sys.executable, "-W", "error", *WAYS[way], codec],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=DEADLINE,
    )


def count(folder: Path, *ways: str, codec: str = "pickle") -> list[int]:
    counts = []
    for way in ways:
        done = run(folder, way, codec)
        assert done.returncode == 0, f"{way}: {done.stderr}"
        is_main = "import" not in way
        assert ("which is defined in the script that runs" in done.stderr) == (is_main and codec == "pickle")
        counts.append(int(done.stdout))
    return counts


@pytest.mark.fault("G7")
def test_a_script_and_the_module_that_it_is_read_each_other(folder: Path) -> None:
    ways = ("script", "imported", "module", "imported", "script", "module")
    assert count(folder, *ways) == [1, 2, 3, 4, 5, 6]


def test_a_script_in_a_package_reads_what_its_module_kept(folder: Path) -> None:
    ways = ("script of a package", "imported from a package", "module of a package", "script of a package")
    assert count(folder, *ways) == [1, 2, 3, 4]


def test_registered_classes_are_read_by_any_program(folder: Path) -> None:
    assert count(folder, "script", "imported from a package", "imported", "module", codec="msgpack") == [1, 2, 3, 4]


KEYED = """
import sys
from dataclasses import dataclass
from enum import Enum, Flag

from malflow import SingleThreadRuntime
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource

Number = Enum("Number", [f"N{at}" for at in range(9)], module=__name__)
Mark = Flag("Mark", "A B C", module=__name__)


@dataclass(frozen=True)
class Place:
    number: Number


KEYS = [*Number, *Mark, Mark.A | Mark.B, *map(Place, Number), *((it, 1) for it in Number)]


def main():
    counts = {}

    def count(key, value, n):
        counts[value] = n + 1
        return value, n + 1

    def build(provider):
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(len(KEYS))))
        numbers.key_distribute("key", lambda msg: KEYS[msg.value]).stateful_map("count", count, int)

    SingleThreadRuntime(build, FsspecBackend("keyed"), parallelism=4).execute()
    (once,) = set(counts.values())
    print(once)


if __name__ == "__main__":
    main()
"""


def test_keys_of_a_script_s_own_classes_stay_where_they_are(folder: Path) -> None:
    (folder / "job.py").write_text(KEYED)
    (folder / "pkg" / "job.py").write_text(KEYED)
    assert count(folder, "script", "imported", "module", "script") == [1, 2, 3, 4]


@pytest.mark.parametrize("way", ["script", "imported"])
def test_a_changed_class_of_a_script_is_refused_in_both(folder: Path, way: str) -> None:
    count(folder, "script")
    (folder / "job.py").write_text(JOB.format(field="\n    more: int = 0"))
    said = run(folder, way).stderr.splitlines()[-1]
    assert said.startswith("malflow.errors.SnapshotError: operator 'count': the fields of Inner (")
    assert said.endswith(
        "job.py:11) changed since snapshot 2: snapshot has (n), program has (n, more); increase version= and pass "
        "migrate=(old, version) -> state"
    )


def test_a_program_that_has_not_imported_the_script_is_told_so(folder: Path) -> None:
    count(folder, "script")
    program = "import other; other.main()"
    (folder / "other.py").write_text(
        JOB.format(field="").replace("class Inner", "class Other").replace("Inner", "Other")
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "pickle"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=DEADLINE,
    )
    said = done.stderr.splitlines()[-1]
    assert "class Acc of module __main__ (the script 'job'), a dataclass (inner) in snapshot 2, can't be found" in said
    assert "import job" in said
