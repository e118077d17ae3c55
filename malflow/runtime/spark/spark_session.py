"""The Spark session a run works in: made if there is none, checked if there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from malflow.errors import GraphError, MalflowError, MissingDependency, RunFailed
from malflow.runtime.spark.error_transport import said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "check_session",
    "gone_told",
    "is_alive",
    "is_local",
    "lend_interpreter",
    "make_session",
    "require_spark",
    "stop_session",
    "tries_of_a_task",
]

_OLDEST_JAVA = 17
_OLDEST_SPARK = (4, 2)
_INSTALL = "pip install 'malflow[spark]'"
_CONF = {
    # Java only carries bytes here: what it would spend on compiling well and on collecting garbage beside the work
    # would be taken from the processes of Python.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stopTimeout": "60s",
}
_GONE = (
    "the Java of this Spark session is gone: it was killed, it crashed, or the session was stopped; state stands as of "
    "the last snapshot: run the program again, in a new process"
)
_OF_THE_USER = (
    "; a signal to the whole process group, as timeout and systemd send it, ends Java too, but not where malflow makes "
    "the session (without spark=)"
)
_STDERR = 2
_NOISE = (
    b"WARNING: Using incubator modules",
    b"Using Spark's default log4j profile",
    b"Setting default log level",
    b"To adjust logging level",
    b" WARN Utils: ",
    b" WARN NativeCodeLoader: ",
)


def require_spark() -> None:
    """Check that pyspark and Java are there.

    Raises:
        MissingDependency: saying what to install.
    """
    try:
        import pandas  # noqa: F401, PLC0415 - only the extra has it
        import pyarrow  # noqa: F401, PLC0415 - only the extra has it
        import pyspark  # noqa: PLC0415 - only the extra has it
    except ImportError as error:
        raise MissingDependency(f"SparkRuntime needs pyspark, pandas and pyarrow: {_INSTALL} ({error})") from error
    version = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])
    if version < _OLDEST_SPARK:
        raise MissingDependency(f"SparkRuntime needs pyspark 4.2 or later; got {pyspark.__version__}: {_INSTALL}")


def make_session() -> tuple[SparkSession, bool]:
    """Return the session that is active, or one made for this machine, and whether it was made.

    Raises:
        MissingDependency: if there is no Java, or too old a one.
        RunFailed: if Spark failed, or the Java of this process is gone.
    """
    try:
        return _active_or_new()
    except MalflowError:
        raise
    except Exception as error:
        raise RunFailed(
            f"Spark gave no session: {said(error)}; where its Java was killed or has crashed, run the program again, "
            "in a new process"
        ) from error


def _active_or_new() -> tuple[SparkSession, bool]:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the extra has it

    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started Java, and says where to run
        return _configured(SparkSession.builder).getOrCreate(), True
    _require_java()
    settings = {"spark.app.name": "malflow"}
    if "SPARK_REMOTE" not in os.environ and "spark.master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        settings["spark.master"] = "local[*, 4]"  # 4: tasks that fail are tried again, as on a cluster
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
    builder = _configured(SparkSession.builder)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _filtered_errors():
        if "SPARK_REMOTE" not in os.environ:
            _launch_java({**_CONF, **settings})
        session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")  # what concerns the user is raised
    return session, True


def _launch_java(settings: Mapping[str, str]) -> None:
    """Start Java apart from the signals of this process's group, of which it would die before a snapshot is taken.

    It still ends with this process, whatever ends that: its standard input does.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - only the extra has it
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - only the extra has it

    context: Any = SparkContext
    if context._gateway is None:  # noqa: SLF001 - otherwise Java runs already
        conf = SparkConf().setAll([*settings.items()])
        context._ensure_initialized(gateway=launch_gateway(conf, {"start_new_session": True}))  # noqa: SLF001


def is_alive(session: SparkSession) -> bool:
    """Whether the Java of a session runs, and the session was not stopped."""
    context: Any = session.sparkContext
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()  # noqa: SLF001 - nothing else tells
    except Exception:  # noqa: BLE001 - whatever py4j makes of a connection that is gone
        return False


def stop_session(session: SparkSession) -> None:
    """Stop a session; where its Java is gone, there is nothing to stop."""
    if is_alive(session):
        with suppress(Exception):  # it may go meanwhile
            session.stop()


@contextmanager
def gone_told(session: SparkSession, *, ours: bool) -> Iterator[None]:
    """Have what fails meanwhile because the Java of a session is gone say so in words.

    Args:
        session: the session.
        ours: whether malflow made it.

    Raises:
        RunFailed: if Java is gone.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, MalflowError) and not isinstance(error, RunFailed):
            raise
        if is_alive(session):
            raise
        raise RunFailed(_GONE if ours else _GONE + _OF_THE_USER) from error


def _configured(builder: Any) -> Any:
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    return builder


def check_session(session: Any) -> None:
    """Refuse what would break what a run promises.

    Raises:
        GraphError: saying which setting, and why.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the extra has it

    if not isinstance(session, SparkSession) or not hasattr(session, "_jsparkSession"):
        raise GraphError(
            f"spark needs a SparkSession of this process; got {type(session).__module__}.{type(session).__name__} "
            "(Spark Connect can't host a run: its driver is elsewhere)"
        )
    conf = session.sparkContext.getConf()
    if conf.get("spark.speculation", "false") == "true":
        raise GraphError(
            "spark.speculation=true has two tasks do the same part of a tick at once, and sinks write twice; "
            "turn it off"
        )
    if conf.get("spark.python.worker.reuse", "true") == "false":
        raise GraphError(
            "spark.python.worker.reuse=false ends each process after one task, so that all state would be read again "
            "in each tick; turn it on"
        )


def lend_interpreter(session: SparkSession) -> None:
    """Have the processes of a session on this machine run the Python of this one, and find the modules it finds.

    Spark starts whatever ``python3`` is on the PATH, unless it was told otherwise. Its processes are kept from run to
    run, as long as what is said here stays the same.
    """
    context: Any = session.sparkContext
    told = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if is_local(session) and not told:
        context.pythonExec = sys.executable
        paths = [*context.environment.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))


def is_local(session: SparkSession) -> bool:
    """Tell whether all processes are on this machine."""
    return str(session.sparkContext.master).startswith("local")


def tries_of_a_task(session: SparkSession) -> int:
    """Tell how often Spark tries a task before it gives up."""
    master = session.sparkContext.master
    if (given := re.fullmatch(r"local\[[^,\]]+,\s*(\d+)\]", master)) is not None:
        return int(given[1])
    if master.startswith("local") and not master.startswith("local-cluster"):
        return 1
    return int(session.sparkContext.getConf().get("spark.task.maxFailures", "4"))


@contextmanager
def _filtered_errors() -> Iterator[None]:
    """Let the process that is started meanwhile write its standard error without what it says at each start."""
    reading, writing = os.pipe()
    own = os.dup(_STDERR)
    os.dup2(writing, _STDERR)
    os.close(writing)
    threading.Thread(target=_forward, args=(reading, os.dup(own)), name="malflow-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(own, _STDERR)
        os.close(own)


def _forward(reading: int, writing: int) -> None:
    with os.fdopen(reading, "rb") as lines, os.fdopen(writing, "wb", buffering=0) as out:
        for line in lines:
            if not any(noise in line for noise in _NOISE):
                out.write(line)


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    told = ""
    if java is not None:
        with suppress(OSError, subprocess.SubprocessError):
            told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr  # noqa: S603 - the user's own Java
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is None:
        where = f"JAVA_HOME={home} has none" if home else "there is none on the PATH"
        raise MissingDependency(
            f"Spark needs Java {_OLDEST_JAVA} or later, and {where}; install one (apt install openjdk-17-jre-headless, "
            "brew install openjdk@17) or set JAVA_HOME"
        )
    if int(found[1]) < _OLDEST_JAVA:
        raise MissingDependency(f"Spark needs Java {_OLDEST_JAVA} or later; '{java}' is Java {found[1]}; set JAVA_HOME")
