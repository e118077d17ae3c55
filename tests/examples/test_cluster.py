"""The example for a cluster: its commands as they are written down, on a standalone cluster of this machine."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from malflow.snapshot import FsspecBackend
from tests.kit.backends import kept_states
from tests.spark.clusters import SECONDS, need_spark, users_environment

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"
TEXTS = {"first.txt": "to be or not to be\n", "second.txt": "that is the question\nnot to be\n"}


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


@contextmanager
def standalone(folder: Path) -> Iterator[dict[str, str]]:
    """Run the master and a worker as the README starts them; return the environment for the rest of its commands."""
    master, worker, submit = commands_under("Standalone").splitlines()
    assert submit.startswith("spark-submit ")
    port = str(free_port())
    environment = {
        **users_environment(folder),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "MASTER": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_WORKER_CORES": "2",
        "SPARK_WORKER_MEMORY": "1g",
        "TMPDIR": str(folder),
    }
    processes = []
    try:
        with (folder / "cluster.log").open("ab") as log:
            for command, ui in ((master, "--webui-port 0 &"), (worker, "--webui-port 0 &")):
                text = command.replace("7077", port).replace("&", ui).rstrip("&")
                processes.append(
                    subprocess.Popen(
                        ["/bin/sh", "-c", f"exec {text}"],
                        stdout=log,
                        stderr=log,
                        env=environment,
                        cwd=folder,
                        start_new_session=True,
                    )
                )
        deadline = time.monotonic() + SECONDS
        while b"Successfully registered with master" not in (folder / "cluster.log").read_bytes():
            assert time.monotonic() < deadline, (folder / "cluster.log").read_text()[-3000:]
            time.sleep(0.1)
        yield {**environment, "PORT": port}
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(SECONDS)


def submitted(folder: Path, environment: dict[str, str]) -> list[str]:
    """Submit the example as the README says, with places of the test's; return what it prints."""
    command = commands_under("Standalone").splitlines()[-1].replace("7077", environment["PORT"])
    for here, there in (("/shared", str(folder)), (" word_count.py", f" {FOLDER / 'word_count.py'}")):
        assert here in command
        command = command.replace(here, there)
    run = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=folder,
        timeout=SECONDS,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return [line.removeprefix("{ ").partition(", timestamp")[0] for line in run.stdout.splitlines()]


def counted(words: list[str], so_far: Counter[str]) -> list[str]:
    """Count some words more, and return what lines say of it."""
    told = []
    for word in words:
        so_far[word] += 1
        told.append(f"key: {word!r}, value: {so_far[word]}")
    return sorted(told)


@pytest.mark.spark
def test_a_cluster_counts_words_and_goes_on_when_there_are_more(tmp_path: Path) -> None:
    need_spark()
    make_zip = commands_under("What every machine needs")
    subprocess.run(
        [sys.executable, *shlex.split(make_zip)[1:]], check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}
    )
    counts: Counter[str] = Counter()
    with standalone(tmp_path) as environment:
        for name, text in TEXTS.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
            assert sorted(submitted(tmp_path, environment)) == counted(text.split(), counts)
    assert kept_states(FsspecBackend(str(tmp_path / "state"), job="word-count"), "count") == counts


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
