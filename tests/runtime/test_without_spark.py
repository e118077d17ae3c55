"""What is there, and what is said, where Spark is not installed."""

from __future__ import annotations

import sys

import pytest

from malflow import MissingDependency, RestartPolicy, SparkRuntime


@pytest.mark.parametrize("missing", ["pyspark", "pandas", "pyarrow"])
def test_what_is_missing_is_named_with_the_command_that_installs_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    runtime = SparkRuntime(lambda provider: None, restart=RestartPolicy(attempts=0))
    with pytest.raises(MissingDependency, match=r"needs pyspark, pandas and pyarrow: pip install 'malflow\[spark\]'"):
        runtime.execute()
    with pytest.raises(MissingDependency):
        runtime.start()
