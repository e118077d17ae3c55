"""The example for a cluster: its commands as they are written down, on a standalone cluster of this machine."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import s3fs

from malflow.snapshot import FsspecBackend
from tests.kit.backends import kept_states
from tests.kit.nights import only_nightly
from tests.kit.waiting import wait_until
from tests.servers.plugin import SERVER
from tests.servers.versitygw import Versitygw
from tests.spark.clusters import SECONDS, need_spark, users_environment

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"
SHORT = "to be or not to be\n"
LONG = "".join(f"to be {number} of {number % 1_000}\n" for number in range(20_000))
"""A text that takes some ticks."""


def commands_under(heading: str) -> str:
    """Return the shell commands of a section of the README."""
    section = (FOLDER / "README.md").read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


class Standalone:
    """The master and workers of one core, as the README starts them.

    Args:
        folder: for their files, and the input.
        scratch: the scratch folder, if it isn't there.
        variables: more of the environment, such as credentials.

    Attributes:
        environment: for the rest of the README's commands.
    """

    def __init__(self, folder: Path, scratch: str | None = None, **variables: str) -> None:
        self.folder = folder
        self._scratch = scratch or f"{folder}/scratch"
        self.environment = {
            **users_environment(folder),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "MASTER": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_WORKER_CORES": "1",
            "SPARK_WORKER_MEMORY": "1g",
            "TMPDIR": str(folder),
            **variables,
        }
        with (folder / "conf" / "spark-defaults.conf").open("a", encoding="utf-8") as settings:
            settings.write("spark.shuffle.io.maxRetries 1\nspark.shuffle.io.retryWait 50ms\n")
        self._port = str(free_port())
        self._log = folder / "cluster.log"
        self._commands = commands_under("Standalone").splitlines()
        self._master = self._start(self._commands[0])
        self._workers: list[subprocess.Popen[bytes]] = []

    def _start(self, command: str) -> subprocess.Popen[bytes]:
        text = command.replace("7077", self._port).replace("&", "--webui-port 0")
        with self._log.open("ab") as log:
            return subprocess.Popen(
                ["/bin/sh", "-c", f"exec {text}"],
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def start_worker(self) -> None:
        """Start a worker, and wait until the master knows it."""
        self._workers.append(self._start(self._commands[1]))
        wait_until(lambda: self._log.read_bytes().count(b"Successfully registered with master") == len(self._workers))

    def kill_worker(self) -> None:
        """Kill the first worker and its executors."""
        os.killpg(self._workers[0].pid, signal.SIGKILL)

    def submit(self) -> subprocess.Popen[str]:
        """Submit the example as the README says, with places of the test's."""
        command = self._commands[-1].replace("7077", self._port)
        places = {"/shared/scratch": self._scratch, "/shared": str(self.folder)}
        for here, there in {**places, " word_count.py": f" {FOLDER / 'word_count.py'}"}.items():
            assert here in command
            command = command.replace(here, there)
        with (self.folder / "errors.log").open("ab") as errors:
            return subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self.environment,
                cwd=self.folder,
            )

    def output(self, run: subprocess.Popen[str]) -> list[str]:
        """Return what a submitted program prints until it ends."""
        out, _ = run.communicate(timeout=SECONDS)
        assert run.returncode == 0, (self.folder / "errors.log").read_text()[-3000:]
        return [line.removeprefix("{ ").partition(", timestamp")[0] for line in out.splitlines()]

    def close(self) -> None:
        """End all of it."""
        for process in (*self._workers, self._master):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(SECONDS)


def counted(words: list[str], so_far: Counter[str]) -> list[str]:
    """Count some words more, and return what lines say of it."""
    told = []
    for word in words:
        so_far[word] += 1
        told.append(f"key: {word!r}, value: {so_far[word]}")
    return sorted(told)


@pytest.mark.spark
@pytest.mark.parametrize("scratch", ["folder", pytest.param("s3", marks=[*SERVER, only_nightly])])
@pytest.mark.nightly
def test_a_cluster_counts_words_and_goes_on_when_there_are_more(
    scratch: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Changes and output pass through a folder that all machines have, or a bucket."""
    need_spark()
    url, variables = on_s3(request.getfixturevalue("versitygw")) if scratch == "s3" else (None, {})
    make_zip = commands_under("What every machine needs")
    subprocess.run(
        [sys.executable, *shlex.split(make_zip)[1:]], check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}
    )
    counts: Counter[str] = Counter()
    with closing(Standalone(tmp_path, url, **variables)) as cluster:
        cluster.start_worker()
        (tmp_path / "first.txt").write_text(SHORT, encoding="utf-8")
        assert sorted(cluster.output(cluster.submit())) == counted(SHORT.split(), counts)
        cluster.start_worker()
        (tmp_path / "second.txt").write_text(LONG, encoding="utf-8")
        counts.update(LONG.split())
        run = cluster.submit()
        assert run.stdout is not None
        assert run.stdout.readline()
        cluster.kill_worker()
        cluster.start_worker()
        assert cluster.output(run)
    assert kept_states(FsspecBackend(str(tmp_path / "state"), job="word-count"), "count") == counts
    assert (tmp_path / "scratch").exists() == (scratch == "folder")


def on_s3(server: Versitygw) -> tuple[str, dict[str, str]]:
    """Return the URL of a new bucket, and the variables by which all machines reach it."""
    bucket = f"scratch-{uuid4().hex[:8]}"
    s3fs.S3FileSystem(**server.options).mkdir(bucket)
    key, secret = server.options["key"], server.options["secret"]
    credentials = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_DEFAULT_REGION": "us-east-1"}
    return f"s3://{bucket}/scratch", {**credentials, "AWS_ENDPOINT_URL": server.address}


def manifest() -> dict[str, dict[str, Any]]:
    import yaml  # noqa: PLC0415 - comes with the S3 server of the tests

    documents = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text(encoding="utf-8"))
    return {document["kind"]: document for document in documents}


def test_the_manifest_fits_together() -> None:
    kinds = manifest()
    pod = kinds["Job"]["spec"]["template"]
    driver = pod["spec"]["containers"][0]
    conf = dict(argument.removeprefix("--conf=").split("=", 1) for argument in driver["args"] if "--conf=" in argument)
    service, account = kinds["Service"], kinds["ServiceAccount"]["metadata"]["name"]

    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert conf["spark.driver.host"] == service["metadata"]["name"]
    ports = {str(port["port"]) for port in service["spec"]["ports"]}
    assert ports == {conf["spark.driver.port"], conf["spark.driver.blockManager.port"]}
    assert (
        pod["spec"]["serviceAccountName"]
        == account
        == conf["spark.kubernetes.authenticate.executor.serviceAccountName"]
    )
    assert kinds["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert kinds["RoleBinding"]["roleRef"]["name"] == kinds["Role"]["metadata"]["name"]
    assert conf["spark.kubernetes.container.image"] == driver["image"]
    assert (FOLDER / driver["args"][len(conf) + 2]).is_file()
    assert "COPY examples/cluster/word_count.py" in (FOLDER / "Dockerfile").read_text(encoding="utf-8")
