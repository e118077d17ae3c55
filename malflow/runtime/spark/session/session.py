"""The Spark session of a run: created if there is none, checked otherwise."""

from __future__ import annotations

import os
import pwd
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
from malflow.runtime.spark.session.java import is_lost_connection, spark_message
from malflow.runtime.spark.session.session_users import SESSION_USERS, is_alive
from malflow.runtime.spark.session.unix_sockets import SOCKETS, check_sockets, socket_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "check_session",
    "check_spark",
    "is_local",
    "java_loss_named",
    "leave_session",
    "make_session",
    "share_interpreter",
    "task_attempts",
]

_OLDEST_JAVA = 17
"""The oldest Java that Spark 4 runs on."""

_OLDEST_SPARK = (4, 2)
_INSTALL = "pip install 'malflow[spark]'"
_CONF = {
    # Java only moves bytes here: an optimizing compiler and a concurrent garbage collector would take processor time
    # from the Python processes.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.showConsoleProgress": "false",
    # Over TCP, each small message between Java and a Python process may wait 40 ms for an acknowledgement.
    SOCKETS: "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stopTimeout": "60s",
}
_GONE = (
    "the Java of this Spark session is gone: it was killed, it crashed, or the session was stopped, by the program or "
    "by a cluster whose executors could not start (the logs of its workers say why); the last snapshot is intact: run "
    "the program again, in a new process; if it ran out of memory, give it more by spark.driver.memory, or read fewer "
    "records at once by max_records_per_tick="
)
_OF_THE_USER = (
    "; a signal to the whole process group, as sent by timeout and systemd, ends Java too, unless malflow creates the "
    "session (without spark=)"
)
_STDERR = 2
"""The file descriptor of the standard error: Java inherits it, so replacing `sys.stderr` is not enough."""

_NOISE = (
    b"WARNING: Using incubator modules",
    b"Using Spark's default log4j profile",
    b"Setting default log level",
    b"To adjust logging level",
    b" WARN Utils: ",
    b" WARN NativeCodeLoader: ",
)


def check_spark() -> None:
    """Check that pyspark, pandas and pyarrow are installed.

    Raises:
        MissingDependency: saying what to install.
    """
    try:
        import pandas  # noqa: F401, PLC0415 - only the extra has it
        import pyarrow  # noqa: F401, PLC0415 - only the extra has it
        import pyspark  # noqa: PLC0415 - only the extra has it
    except ImportError as error:
        raise MissingDependency(f"SparkRuntime needs pyspark, pandas and pyarrow; {_INSTALL} ({error})") from error
    version = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])
    if version < _OLDEST_SPARK:
        raise MissingDependency(f"SparkRuntime needs pyspark 4.2 or later; got {pyspark.__version__}; {_INSTALL}")


def make_session(conf: Mapping[str, str] | None = None) -> tuple[SparkSession, bool]:
    """Return the session of this process or a new one for this machine, and whether malflow made it.

    If malflow made it, `leave_session` must follow.

    Args:
        conf: the user's settings for a new one.

    Raises:
        GraphError: if there are such settings, and a session with others.
        MissingDependency: if Java is missing or too old.
        RunFailed: if Spark failed, or the Java of this process is gone.
    """
    try:
        return SESSION_USERS.take(conf or {}, _new_session)
    except MalflowError:
        raise
    except Exception as error:
        raise RunFailed(
            f"Spark could not create a session: {spark_message(error)}; if its Java was killed or crashed, run the "
            "program again, in a new process; if no executor could start, the logs of the cluster's workers say why"
        ) from error


def leave_session() -> None:
    """End the use of the session that malflow made; stop it if no other run uses it."""
    SESSION_USERS.leave()


def _new_session(conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the extra has it

    session: SparkSession
    builder = _configured(SparkSession.builder)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started Java and set the master
        session = _with_settings(builder, {**conf, **_sockets(conf)}).getOrCreate()
        return session
    _check_java()
    _check_user()
    settings = {"spark.app.name": "malflow"}
    if "SPARK_REMOTE" not in os.environ and "spark.master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        settings["spark.master"] = "local[*, 4]"  # 4: failed tasks are retried, as on a cluster
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
    settings |= conf
    with _filtered_errors():
        if "SPARK_REMOTE" not in os.environ:
            _launch_java({**_CONF, **settings})
            settings |= _sockets(settings)
        session = _with_settings(builder, settings).getOrCreate()
    session.sparkContext.setLogLevel("FATAL")  # errors that concern the user are raised
    return session


def _sockets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Unix sockets, once Java runs."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - only the extra has it

    context: Any = SparkContext
    context._ensure_initialized()  # noqa: SLF001 - with spark-submit, Java runs before
    told = {**dict(SparkConf().getAll()), **_CONF, **settings}
    javas = getattr(context._jvm, "java.lang.System").getProperty("java.io.tmpdir")  # noqa: SLF001 - as above
    return socket_settings(told, javas, is_local=_is_local(told.get("spark.master", "")))


def _with_settings(builder: Any, settings: Mapping[str, str]) -> Any:
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


def _launch_java(settings: Mapping[str, str]) -> None:
    """Start Java in its own session. A signal to our process group then does not end it before a snapshot.

    It still ends with this process, however that ends, since its standard input is then closed.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - only the extra has it
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - only the extra has it

    context: Any = SparkContext
    if context._gateway is None:  # noqa: SLF001 - otherwise Java runs already
        conf = SparkConf().setAll([*settings.items()])
        context._ensure_initialized(gateway=launch_gateway(conf, {"start_new_session": True}))  # noqa: SLF001


@contextmanager
def java_loss_named(session: SparkSession, *, ours: bool) -> Iterator[None]:
    """Convert errors inside this context to a clear one if the session's Java is gone.

    Args:
        session: the session.
        ours: whether malflow created it.

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
        cause = None if is_lost_connection(error.__cause__ or error) else error
        raise RunFailed(_GONE if ours else _GONE + _OF_THE_USER) from cause


def _configured(builder: Any) -> Any:
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    return builder


def check_session(session: Any) -> None:
    """Check that no setting of a session breaks a run's guarantees."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the extra has it

    if not isinstance(session, SparkSession) or not hasattr(session, "_jsparkSession"):
        raise GraphError(
            f"spark needs a SparkSession of this process; got {type(session).__module__}.{type(session).__name__} "
            "(Spark Connect can't host a run: its driver is in another process)"
        )
    conf = session.sparkContext.getConf()
    if conf.get("spark.speculation", "false") == "true":
        raise GraphError(
            "spark.speculation=true runs two tasks for the same part of a tick at once, so sinks write twice; turn it "
            "off"
        )
    if conf.get("spark.python.worker.reuse", "true") == "false":
        raise GraphError(
            "spark.python.worker.reuse=false ends each process after one task, so every tick would read all state "
            "again; turn it on"
        )
    if not _is_local(session.sparkContext.master):
        check_sockets(session)


def share_interpreter(session: SparkSession) -> None:
    """Make a local session's processes use this process's Python interpreter and module search path.

    By default, Spark starts the ``python3`` on the PATH. It keeps its processes from run to run while these settings
    stay the same.
    """
    context: Any = session.sparkContext
    told = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if is_local(session) and not told:
        context.pythonExec = sys.executable
        paths = [*context.environment.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))


def is_local(session: SparkSession) -> bool:
    """Whether all processes of a session are on this machine."""
    return str(session.sparkContext.master).startswith("local")


def _is_local(master: str) -> bool:
    """Whether the executor of a master is the driver's Java itself."""
    return master.startswith("local") and not master.startswith("local-cluster")


def task_attempts(session: SparkSession) -> int:
    """Return the number of times that Spark tries a task before it gives up."""
    master = session.sparkContext.master
    if (given := re.fullmatch(r"local\[[^,\]]+,\s*(\d+)\]", master)) is not None:
        return int(given[1])
    if _is_local(master):
        return 1
    return int(session.sparkContext.getConf().get("spark.task.maxFailures", "4"))


@contextmanager
def _filtered_errors() -> Iterator[None]:
    """Filter the JVM's startup noise from standard error."""
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


def _check_java() -> None:
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
            f"Spark needs Java {_OLDEST_JAVA} or later; {where}; install it (apt install openjdk-17-jre-headless, "
            "brew install openjdk@17) or set JAVA_HOME"
        )
    if int(found[1]) < _OLDEST_JAVA:
        raise MissingDependency(f"Spark needs Java {_OLDEST_JAVA} or later; '{java}' is Java {found[1]}; set JAVA_HOME")


def _check_user() -> None:
    """Check that the user of this process has a name. Hadoop's Java asks for it.

    Raises:
        RunFailed: saying how to name it.
    """
    user = os.geteuid()
    try:
        pwd.getpwuid(user)
    except KeyError:
        raise RunFailed(
            f"Spark's Java can't run as user {user}, who has no name; add a line such as "
            f"'spark:x:{user}:{os.getegid()}::/tmp:/bin/sh' to /etc/passwd, as the entrypoint of Spark's images does, "
            "or run as another user"
        ) from None
