"""An archive of the classes that Spark loads, so that each Java of a test starts in half the processor time.

``python -m tests.kit.java_archive`` creates it, beside the packages of this Python. See "Class Data Sharing" in Java's
documentation: a Java that differs from the one that wrote the archive ignores it.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
from pathlib import Path

__all__ = ["FLAGS", "PATH"]


def _spark_version() -> str:
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return "none"


PATH = Path(sys.prefix, f"spark-{_spark_version()}.jsa")
"""The archive; about 170 MB."""

FLAGS = f" -XX:SharedArchiveFile={PATH} -Xlog:disable -Xlog:all=error:stderr" if PATH.exists() else ""
"""The options of Java that use it; none where there is no archive."""


def main() -> None:
    """Create the archive, unless it exists or Spark can't run here."""
    from malflow import MissingDependency  # noqa: PLC0415 - constants of this module are wanted without it
    from malflow.runtime.spark.session.session import _check_java, check_spark  # noqa: PLC0415
    from tests.kit.spark_session import QUICK_JAVA, started_session  # noqa: PLC0415 - it imports this module

    try:
        check_spark()
        _check_java()
    except MissingDependency as error:
        print(f"no archive of Spark's classes: {error}")
        return
    if PATH.exists():
        return
    part = PATH.with_name(f"{PATH.name}.{os.getpid()}.part")
    options = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={part} -Xlog:disable -Xlog:all=error:stderr"
    with tempfile.TemporaryDirectory() as folder:
        session = started_session(Path(folder), **{"spark.driver.extraJavaOptions": options})
        _run(session)
        gateway = session.sparkContext._gateway  # its Java writes the archive when it ends
        session.stop()
        gateway.proc.stdin.close()
        gateway.proc.wait(300)
    if part.exists():
        part.rename(PATH)


def _run(session: object) -> None:
    """Run a dataflow that exchanges records and keeps state, for the classes that it loads."""
    from malflow import SparkRuntime, StreamProvider  # noqa: PLC0415
    from malflow.sinks import VecSink  # noqa: PLC0415
    from malflow.sources import StatefulSource  # noqa: PLC0415
    from malflow.testing import ScriptedSource  # noqa: PLC0415

    def build(provider: StreamProvider) -> None:
        script = {part: list(range(30)) for part in "ab"}
        numbers = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(script)))
        keyed = numbers.key_distribute("key", lambda msg: msg.value % 5)
        keyed.stateful_map("sum", lambda _, value, total: (total + value, total + value), int).sink("out", VecSink())

    SparkRuntime(build, parallelism=2, spark=session, max_records_per_tick=20).execute()


if __name__ == "__main__":
    main()
