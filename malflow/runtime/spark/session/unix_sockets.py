"""The folders of the Unix sockets between Java and Python, whose paths must be short.

By default they lie in Java's temporary folder. YARN gives each container one with a long path, and a Unix socket in it
can't be opened. The sockets of killed processes stay there.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from malflow.errors import GraphError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SOCKETS", "check_sockets", "folder_of_driver", "socket_settings", "sweep_here", "sweep_sockets"]

SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_FOLDER: Final = "spark.python.unix.domain.socket.dir"
_VARIABLE: Final = "PYTHON_WORKER_FACTORY_SOCK_DIR"
"""The variable by which Java tells its Python processes the folder."""

_ON_CLUSTERS: Final = "/tmp"  # noqa: S108 - the sockets are open to their owner alone, and have random names
"""The folder on machines that we can't look at."""

_NAME: Final = re.compile(r"\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.sock")
_LONGEST: Final = (108 if sys.platform == "linux" else 104) - len("/.01234567-0123-0123-0123-0123456789ab.sock") - 1
"""Bytes of the longest folder, with the names that PySpark gives to sockets."""


def socket_settings(told: Mapping[str, str], javas: str, *, is_local: bool) -> dict[str, str]:
    """Return the settings of a new session for sockets with short paths, or for TCP.

    Args:
        told: the settings that the session would have.
        javas: the temporary folder of the driver's Java.
        is_local: whether all processes are on this machine, with the same folders.

    Raises:
        GraphError: if the settings name a folder with too long a path.
    """
    if told.get(SOCKETS) != "true":
        return {}
    if _FOLDER in told:
        _check_length(told[_FOLDER], f"{_FOLDER}={told[_FOLDER]!r}")
        return {}
    if not is_local:
        return {_FOLDER: _ON_CLUSTERS}
    if _is_short(javas):
        return {}
    folders = (it for it in (tempfile.gettempdir(), _ON_CLUSTERS) if _is_short(it) and os.access(it, os.W_OK))
    folder = next(folders, None)
    return {SOCKETS: "false"} if folder is None else {_FOLDER: folder}


def check_sockets(session: SparkSession) -> None:
    """Check that the executors of a cluster can open Unix sockets, where the session was made without malflow."""
    conf = session.sparkContext.getConf()
    if conf.get(SOCKETS, os.environ.get("PYSPARK_UDS_MODE", "false")) != "true" or conf.get(_FOLDER) is not None:
        return
    for folder in _folders_of_executors(session):
        _check_length(folder, f"{SOCKETS}=true: the executors' java.io.tmpdir is {folder!r}")


def _folders_of_executors(session: SparkSession) -> Collection[str]:
    """Return Java's temporary folder on the executors, as Java tells it: Python can't start there if it is too long."""
    ask = "java_method('java.lang.System', 'getProperty', 'java.io.tmpdir') AS folder"
    return {row.folder for row in session.range(0, 1, 1, 1).selectExpr(ask).collect()}


def _check_length(folder: str, what: str) -> None:
    if not _is_short(folder):
        raise GraphError(
            f"{what}, which is too long for a Unix socket: {len(os.fsencode(folder))} bytes, of which {_LONGEST} are "
            f"possible; set {_FOLDER} to a shorter folder that all machines have, such as {_ON_CLUSTERS}, or "
            f"{SOCKETS}=false, where the session is made"
        )


def _is_short(folder: str) -> bool:
    return len(os.fsencode(folder)) <= _LONGEST


def folder_of_driver(session: SparkSession) -> str:
    """Return the folder of the driver's sockets; empty if Java is gone."""
    context: Any = session.sparkContext
    with suppress(Exception):  # py4j raises various errors for a lost connection
        told = context.getConf().get(_FOLDER)
        return str(told or getattr(context._jvm, "java.lang.System").getProperty("java.io.tmpdir"))  # noqa: SLF001 - there is no public way
    return ""


@cache
def sweep_here() -> None:
    """Remove the sockets of killed processes from the folder of this Python process of Spark, once."""
    sweep_sockets(os.environ.get(_VARIABLE, ""))


def sweep_sockets(folder: str) -> None:
    """Remove the sockets of killed processes from a folder, if there is one."""
    if not folder:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and _is_dead(entry):
                with suppress(OSError):
                    Path(entry.path).unlink()


def _is_dead(entry: os.DirEntry[str]) -> bool:
    """Whether nobody has bound a socket of ours any more.

    A live one refuses a connection of another type of socket, and does not notice it.
    """
    facts: Any = entry.stat(follow_symlinks=False)
    if facts.st_uid != os.geteuid() or not stat.S_ISSOCK(facts.st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(entry.path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
