"""The Spark session that all tests share: started by the first that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from malflow import MissingDependency
from malflow.runtime.spark.session.session import _check_java, check_spark
from tests.kit import java_archive

__all__ = ["INTERPRETED", "QUICK_JAVA", "QUICK_PYTHON", "quiet_session", "spark", "started_session"]

QUICK_JAVA = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC{java_archive.FLAGS}"
"""Options of Java: the queries are too short to be compiled well, and two processors are few."""

INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
"""Settings by which Spark writes no Java for a query, which would take longer than its few rows."""

QUICK_PYTHON = {"spark.python.daemon.module": "tests.kit.spark_daemon"}
"""Settings by which Spark's processes of Python collect garbage faster; they must be able to import `tests`."""

_ROOT = Path(__file__).parents[2]
_CONF = {
    **INTERPRETED,
    **QUICK_PYTHON,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executorEnv.PYTHONWARNINGS": "error,ignore::ResourceWarning",  # of what starts the processes of Python
    "spark.executorEnv.PYTHONPATH": str(_ROOT),  # functions of test modules are found by name there
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def quiet_session(folder: Path, master: str = "local[2]", **conf: str) -> Iterator[Any]:
    """Start a quiet session as `started_session` does, and stop it at the end."""
    session = started_session(folder, master, **conf)
    try:
        yield session
    finally:
        session.stop()


def started_session(folder: Path, master: str = "local[2]", **conf: str) -> Any:
    """Start a quiet session.

    Args:
        folder: where its tables would lie.
        master: what it works on.
        conf: more settings.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the extra has it

    builder = SparkSession.builder.master(master).appName("malflow tests")
    for name, value in {**_CONF, "spark.sql.warehouse.dir": str(folder), **conf}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a quiet session of two cores on this machine; skip where there is no pyspark or no Java."""
    try:
        check_spark()
        _check_java()
    except MissingDependency as error:
        pytest.skip(str(error))
    with quiet_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session
