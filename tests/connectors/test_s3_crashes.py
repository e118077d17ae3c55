"""Parquet files, JSON lines, CSV and a Delta table on S3: kills of it at each point of a commit, also with the job."""

from __future__ import annotations

import csv
import io
import itertools
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs

from tests.connectors.s3_program import SIZE, delta_options
from tests.kit.killing import parked, run_child, start_child, wake
from tests.kit.nights import NIGHTLY, at_night, only_nightly
from tests.kit.waiting import wait_until
from tests.servers.versitygw import Versitygw

pytestmark = pytest.mark.slow

PROGRAM = "tests.connectors.s3_program"
BEFORE = ["before-prepare", "prepared", "data-written", "before-manifest", "manifest-written", "before-commit"]
STEPS = {
    "parquet": ["before-upload", "after-upload", "before-begin", "after-begin", "after-publish", "after-finish"],
    "json": ["before-upload", "after-upload", "before-begin", "after-begin", "after-publish", "after-finish"],
    "csv": ["before-upload", "after-upload", "before-begin", "after-begin", "after-publish", "after-finish"],
    "delta": ["before-append", "after-append"],
}
SHORT = [("parquet", "after-begin", "on S3"), ("json", "after-publish", "on S3"), ("csv", "after-upload", "on S3")]
"""The points of the short suite."""

ALL = [
    (kind, point, state)
    for kind, steps in STEPS.items()
    for point in [*BEFORE, *steps, "committed"]
    for state in ("on S3", "local")
]
AWAY = 1.0
LONG_AWAY = 12.0
"""Seconds for which a server is away: some, and more than S3's clients wait by themselves."""


class Output:
    """A folder on a server that is killed, with a reader beside the job, who sees what is visible as it comes.

    Each look is at whole transactions, of which none goes again, and no row is in two of them.
    """

    def __init__(self, server: Versitygw, kind: str, state: str, folder: Path) -> None:
        self.kind, self.server = kind, server
        self.bucket = f"bucket-{uuid4().hex[:12]}"
        self._filesystem = s3fs.S3FileSystem(**server.options, skip_instance_cache=True, use_listings_cache=False)
        self._filesystem.mkdir(self.bucket)
        state = f"s3://{self.bucket}/state" if state == "on S3" else str(folder / "state")
        self.arguments = (kind, server.address, self.bucket, state)
        self.seen: dict[str, list[int]] = {}
        self.looks = 0

    def look(self) -> None:
        """Look once.

        Raises:
            OSError: if the server can't be reached.
        """
        found = self._commits() if self.kind == "delta" else self._files()
        assert self.seen.items() <= found.items()
        numbers = sorted(itertools.chain.from_iterable(found.values()))
        assert numbers == list(range(len(numbers)))
        assert all(sorted(rows) == list(range(min(rows), min(rows) + len(rows))) for rows in found.values())
        assert all(min(rows) % 2 == len(rows) % 2 == 0 for rows in found.values())
        self.seen = found
        self.looks += 1

    def _files(self) -> dict[str, list[int]]:
        answer = self._filesystem.call_s3("list_objects_v2", Bucket=self.bucket, Prefix="out/part-")
        names = [f"{self.bucket}/{it['Key']}" for it in answer.get("Contents", ())]
        return {name: self.seen.get(name) or self._rows(name) for name in names}

    def _commits(self) -> dict[str, list[int]]:
        try:
            table: Any = deltalake.DeltaTable(
                f"s3://{self.bucket}/out", storage_options=delta_options(self.server.address)
            )
        except deltalake.exceptions.TableNotFoundError:
            return {}
        files = {str(uri).removeprefix("s3://") for uri in table.file_uris()}
        return {name: self.seen.get(name) or self._rows(name) for name in sorted(files)}

    def _rows(self, name: str) -> list[int]:
        body = self._filesystem.cat_file(name)
        if self.kind == "json":
            return [int(json.loads(line)["n"]) for line in body.splitlines()]
        if self.kind == "csv":
            return [int(row["n"]) for row in csv.DictReader(io.StringIO(body.decode()))]
        return [int(n) for n in pq.read_table(io.BytesIO(body))["n"].to_pylist()]


@contextmanager
def watched(server: Versitygw, kind: str, state: str, folder: Path) -> Iterator[Output]:
    """Return a new output; at the end check what the reader beside has seen."""
    output = Output(server, kind, state, folder)
    ended = threading.Event()
    wrong: list[BaseException] = []

    def watch() -> None:
        while not ended.wait(0.01):
            try:
                output.look()
            except (AssertionError, pa.ArrowInvalid) as error:
                wrong.append(error)
                return
            except Exception:  # noqa: BLE001 - the server is away, and libraries raise anything
                time.sleep(0.05)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield output
    finally:
        ended.set()
        thread.join(60)
    assert not wrong
    before = output.looks
    output.look()
    assert sum(map(len, output.seen.values())) == SIZE
    assert len(output.seen) > 3
    assert before > 3


def survive(server: Versitygw, output: Output, point: str, seconds: float) -> None:
    """Run a job to its end whose server is killed at a point, and is away for some seconds."""
    with parked(PROGRAM, *output.arguments, point=f"{point}:3") as survivor:
        server.kill()
        back = threading.Timer(seconds, server.start)
        back.start()
        assert wake(survivor) == (0, "")
        back.join()


@pytest.mark.fault("A7")
@pytest.mark.parametrize(("kind", "point", "state"), at_night(ALL if NIGHTLY else SHORT))
def test_kill_of_the_server_and_then_of_both(
    own_versitygw: Callable[[], Versitygw], tmp_path: Path, kind: str, point: str, state: str
) -> None:
    server = own_versitygw()
    with watched(server, kind, state, tmp_path / "alone") as output:
        survive(server, output, point, AWAY)
    with watched(server, kind, state, tmp_path / "both") as output:
        with parked(PROGRAM, *output.arguments, point=f"{point}:3"):
            server.kill()
        server.start()
        run_child(PROGRAM, *output.arguments)


@pytest.mark.fault("C6")
@only_nightly
@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("parquet", "before-upload"),
        ("parquet", "after-begin"),
        ("parquet", "after-publish"),
        ("json", "before-upload"),
        ("delta", "before-append"),
    ],
)
def test_server_that_is_away_for_long(
    own_versitygw: Callable[[], Versitygw], tmp_path: Path, kind: str, point: str
) -> None:
    server = own_versitygw()
    with watched(server, kind, "local", tmp_path) as output:
        survive(server, output, point, LONG_AWAY)


@only_nightly
@pytest.mark.parametrize(
    ("kind", "point", "error"),
    [
        ("parquet", "before-upload", "SinkFileError: sink file 's3://"),
        ("parquet", "before-begin", "could not be"),
        ("parquet", "after-begin", "SinkFileError: sink file 's3://"),
        ("delta", "before-append", "DeltaSinkError: Delta table 's3://"),
    ],
)
def test_run_that_ends_as_the_server_stays_away(
    own_versitygw: Callable[[], Versitygw], tmp_path: Path, kind: str, point: str, error: str
) -> None:
    server = own_versitygw()
    with watched(server, kind, "local", tmp_path) as output:
        with parked(PROGRAM, *output.arguments, "impatient", point=f"{point}:3") as child:
            server.kill()
            code, errors = wake(child)
        assert code == 1
        assert error in errors
        assert "malflow-secret" not in errors
        server.start()
        run_child(PROGRAM, *output.arguments)


@only_nightly
@pytest.mark.parametrize("kind", ["parquet", "json", "csv", "delta"])
@pytest.mark.parametrize("seed", range(5))
def test_kills_at_random_moments(own_versitygw: Callable[[], Versitygw], tmp_path: Path, kind: str, seed: int) -> None:
    server, rng = own_versitygw(), random.Random(seed)  # noqa: S311 - no secret
    with watched(server, kind, "on S3", tmp_path) as output:
        while (code := _run_amid_kills(server, output, rng)) != 0:
            assert code == -signal.SIGKILL


def _run_amid_kills(server: Versitygw, output: Output, rng: random.Random) -> int:
    """Run a job whose server is killed now and then, and at last perhaps the job as well; return its exit code."""
    with start_child(PROGRAM, *output.arguments) as child:
        looks = output.looks
        wait_until(lambda: output.looks > looks + 3 or child.poll() is not None)
        for _ in range(rng.randint(1, 4)):
            time.sleep(rng.uniform(0, 0.5))
            server.kill()
            time.sleep(rng.uniform(0, 0.5))
            server.start()
        if rng.random() < 0.5:
            child.kill()
        _, errors = child.communicate(timeout=300)
    assert child.returncode <= 0, errors
    return child.returncode
