"""The package without Spark installed, and its errors."""

from __future__ import annotations

import sys

import pytest

from malflow import MissingDependency, RestartPolicy, SparkRuntime


@pytest.mark.parametrize("missing", ["pyspark", "pandas", "pyarrow"])
def test_missing_package_is_named_with_its_install_command(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    runtime = SparkRuntime(lambda provider: None, restart=RestartPolicy(attempts=0))
    with pytest.raises(MissingDependency, match=r"needs pyspark, pandas and pyarrow; pip install 'malflow\[spark\]'"):
        runtime.execute()
    with pytest.raises(MissingDependency):
        runtime.start()
