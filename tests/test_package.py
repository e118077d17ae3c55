"""The door: what `import malflow` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import malflow
import malflow.agg
import malflow.events
import malflow.patterns
import malflow.sinks
import malflow.snapshot
import malflow.sources


@pytest.mark.parametrize(
    "module", [malflow, malflow.agg, malflow.events, malflow.patterns, malflow.sources, malflow.sinks, malflow.snapshot]
)
def test_all_is_sorted_and_complete(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert all(hasattr(module, name) for name in names)


@pytest.mark.parametrize("name", ["pyspark", "s3fs", "boto3", "pandas", "numpy", "cloudpickle", "asyncio"])
def test_importing_malflow_brings_nothing_heavy(name: str) -> None:
    program = f"import sys, malflow, malflow.sources, malflow.sinks; sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", program], check=False).returncode == 0


def test_version_is_the_metadatas() -> None:
    assert malflow.__version__ == version("malflow")
