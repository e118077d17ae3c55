"""A session belongs to who made it: runs leave the user's alone, and share the one that malflow makes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, SparkRuntime, StreamProvider
from malflow.runtime.spark.session.unix_sockets import check_sockets, folder_of_driver, socket_settings, sweep_sockets
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from tests.spark.clusters import SECONDS, need_spark, users_environment

SHORT = "/dev/shm"  # noqa: S108 - nothing is written there
ENABLED, FOLDER = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
LONG = "/mnt/yarn/usercache/hadoop/appcache/application_1764300000000_0001/container_1764300000000_0001_01_000002/tmp"


class InThread(threading.Thread):
    """Runs a dataflow in a thread of its own, as a notebook's server does.

    Args:
        options: those of the runtime.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.results: VecSink[Any, Any, Any] = VecSink()
        self.error: Exception | None = None
        self._options = options
        self.start()
        self.join(SECONDS)

    def build(self, provider: StreamProvider) -> None:
        """Build the dataflow."""
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(10)))
        numbers.map("double", lambda number: 2 * number).sink("out", self.results)

    def run(self) -> None:
        """Run it."""
        try:
            SparkRuntime(self.build, parallelism=2, **self._options).execute()
        except GraphError as error:
            self.error = error


# The user's session


@pytest.mark.spark
def test_a_run_in_another_thread_leaves_the_users_session_as_it_is(spark: Any) -> None:
    before = dict(spark.conf.getAll)
    assert sorted(InThread().results.values) == list(range(0, 20, 2))
    assert dict(spark.conf.getAll) == before
    assert spark.range(5).count() == 5


@pytest.mark.spark
def test_settings_are_refused_in_another_thread_than_the_sessions(spark: Any) -> None:
    error = InThread(conf={"spark.flow.setting": "mine"}).error
    assert str(error).startswith("conf has spark.flow.setting, but a session exists already")
    assert spark.conf.get("spark.flow.setting", None) is None


# The session that malflow makes

SHARED = """
import json, sys, threading
from pyspark.sql import SparkSession
from malflow import GraphError, SparkRuntime
from malflow.sinks import VecSink
from malflow.testing import ScriptedSource

begun, told = threading.Event(), {}
released = []

class Waits:
    def on_event(self, event):
        begun.set()

def make(out, numbers):
    def build(provider):
        stream = provider.new_stream().source("numbers", ScriptedSource(numbers))
        stream.key_distribute("key", lambda message: message.value % 2).sink("out", out)
    return build

conf = {"spark.flow.setting": "mine"}
short, long = VecSink(), VecSink()
first = SparkRuntime(make(short, range(3)), parallelism=1, conf=conf).start()
second = SparkRuntime(make(long, range(500)), parallelism=1, conf=conf, max_records_per_tick=1).start()
first.await_termination()
told["alive"] = SparkSession.active().range(3).count()
try:
    SparkRuntime(make(VecSink(), [1]), conf={"spark.flow.setting": "other"}).execute()
except GraphError as error:
    told["refused"] = str(error)
told["sockets"] = SparkSession.active().sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
second.stop()
second.await_termination()
told["results"] = len(short.values), len(long.values) > 3
told["after"] = SparkSession.getActiveSession() is None
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a program tells that starts two runs, where Java's temporary folder has a long path."""
    need_spark()
    folder = tmp_path_factory.mktemp("session")
    javas = folder / ("x" * 100)
    javas.mkdir()
    environment = users_environment(folder)
    environment["SPARK_SUBMIT_OPTS"] += f" -Djava.io.tmpdir={javas}"
    done = subprocess.run(
        [sys.executable, "-c", SHARED],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=Path(__file__).parents[2],
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.spark
@pytest.mark.nightly
def test_two_runs_share_the_session_that_malflow_made(told: dict[str, Any]) -> None:
    assert (told["alive"], told["results"]) == (3, [3, True])


@pytest.mark.spark
@pytest.mark.nightly
def test_the_last_run_stops_the_session_that_malflow_made(told: dict[str, Any]) -> None:
    assert told["after"]


@pytest.mark.spark
@pytest.mark.nightly
def test_other_settings_than_those_of_the_shared_session_are_refused(told: dict[str, Any]) -> None:
    assert told["refused"].startswith("conf has spark.flow.setting, but a session exists already")


@pytest.mark.spark
@pytest.mark.nightly
def test_a_session_has_short_sockets_where_javas_folder_is_long(told: dict[str, Any]) -> None:
    assert 0 < len(told["sockets"]) < 64


# The folders of Unix sockets


@pytest.mark.parametrize(
    ("told", "javas", "is_local", "settings"),
    [
        pytest.param({ENABLED: "true"}, SHORT, True, {}, id="short"),
        pytest.param({ENABLED: "true"}, LONG, True, {FOLDER: SHORT}, id="long"),
        pytest.param({ENABLED: "true"}, SHORT, False, {FOLDER: "/tmp"}, id="cluster"),  # noqa: S108 - all machines have it
        pytest.param({ENABLED: "true", FOLDER: "/run"}, LONG, False, {}, id="chosen"),
        pytest.param({ENABLED: "false"}, LONG, False, {}, id="tcp"),
        pytest.param({}, LONG, True, {}, id="off"),
    ],
)
def test_new_sessions_have_sockets_with_short_paths(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, str], javas: str, is_local: bool, settings: dict[str, str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", SHORT)
    assert socket_settings(told, javas, is_local=is_local) == settings


def test_a_folder_that_is_too_long_for_sockets_is_refused() -> None:
    with pytest.raises(GraphError, match=rf"{FOLDER}='{LONG}', which is too long for a Unix socket: 109 bytes, of"):
        socket_settings({ENABLED: "true", FOLDER: LONG}, SHORT, is_local=False)


def test_the_longest_folder_that_is_accepted_has_room_for_a_socket() -> None:
    for size in (60, 64, 65, 70):
        folder = "/" + "x" * (size - 1)
        fits = socket_settings({ENABLED: "true"}, folder, is_local=True) == {}
        end = socket.socket(socket.AF_UNIX)
        with end, pytest.raises(OSError, match=r"No such file" if fits else "path too long"):
            end.bind(f"{folder}/.{uuid.uuid4()}.sock")


@pytest.mark.spark
def test_the_executors_of_a_session_tell_their_temporary_folder(spark: Any) -> None:
    check_sockets(spark)
    assert Path(folder_of_driver(spark)).is_dir()


def test_sockets_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket may have 107 bytes
    dead, alive, bound = (tmp_path / f".{uuid.uuid4()}.sock" for _ in range(3))
    other, plain = tmp_path / "other.sock", tmp_path / f".{uuid.uuid4()}.sock"
    plain.touch()
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as waiting:
        for path in (dead, other):
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(path.name)
        listening.bind(alive.name)
        listening.listen()
        waiting.bind(bound.name)
        sweep_sockets(".")
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):  # it has not noticed anything
            listening.accept()
    assert {*tmp_path.iterdir()} == {alive, bound, other, plain}


# A user without a name, such as a container's


NAMELESS = """
import os
import pyspark.sql, pyspark.java_gateway, subprocess
from malflow.errors import RunFailed
from malflow.runtime.spark.session.session import make_session
os.setuid(54321)
try:
    make_session()
except RunFailed as error:
    print(error)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become somebody else")
@pytest.mark.slow
def test_a_user_without_a_name_is_told_what_java_lacks() -> None:
    need_spark()
    told = subprocess.run([sys.executable, "-c", NAMELESS], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert told.stdout == (
        "Spark's Java can't run as user 54321, who has no name; add a line such as "
        f"'spark:x:54321:{os.getgid()}::/tmp:/bin/sh' to /etc/passwd, as the entrypoint of Spark's images does, "
        "or run as another user\n"
    )
