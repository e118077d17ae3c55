"""From a stream to a table, exactly once, whichever process is killed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.kit.killing import DRIVER_POINTS, POINTS, kill_child, parked, run_child, start_child, wake
from tests.kit.nights import NIGHTLY, at_night, only_nightly
from tests.kit.waiting import wait_until
from tests.servers.redis_server import RedisServer

PROGRAM = "tests.connectors.redis.program"
SIZE = 200
TOTAL = str(sum(range(SIZE))).encode()
OWN = ["sink-commit", "sink-after-commit"]
"""Points within the commits."""
SHORT = ["before-manifest", "before-commit"]


def fill(client: Any, name: str) -> None:
    with client.pipeline(transaction=False) as pipe:
        for number in range(SIZE):
            pipe.xadd(name, {"n": number})
        pipe.execute()


@contextmanager
def watched(client: Any, name: str) -> Iterator[list[int]]:
    """Check beside that each transaction is seen whole, and that no total goes back; yield the totals seen."""
    seen: list[int] = []
    wrong: list[Any] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.003):
            try:
                rows = client.hgetall(f"{name}:sums")
            except redis.RedisError:
                continue
            if len({*rows.values()}) > 1 or len(rows) == 1:
                wrong.append(rows)
            total = int(rows.get(b"left", -1))
            if seen and total < seen[-1]:
                wrong.append((seen[-1], total))
            if not seen or total != seen[-1]:
                seen.append(total)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
    assert not wrong


@pytest.mark.parametrize("point", at_night([*POINTS, *OWN] if NIGHTLY else SHORT, but=["before-commit"]))
def test_program_killed_at_each_point(redis_url: str, client: Any, name: str, tmp_path: Path, point: str) -> None:
    fill(client, name)
    with watched(client, name) as seen:
        kill_child(PROGRAM, tmp_path, redis_url, name, point=f"{point}:3")
        kill_child(PROGRAM, tmp_path, redis_url, name, point=f"{point}:4")
        run_child(PROGRAM, tmp_path, redis_url, name)
        wait_until(lambda: seen[-1] == int(TOTAL), 30)
    assert client.hgetall(f"{name}:sums") == {b"left": TOTAL, b"right": TOTAL}
    assert len(seen) > 3, "totals appeared one after the other"


@pytest.mark.nightly
def test_server_killed_while_a_program_runs(own_redis: Callable[[], RedisServer], name: str, tmp_path: Path) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.address) as client:
        fill(client, name)
        with watched(client, name) as seen:
            process = start_child(PROGRAM, tmp_path, server.address, name)
            kills = 0
            while process.poll() is None and kills < 3:
                before = len(seen)
                wait_until(lambda before=before: len(seen) > before or process.poll() is not None, 60)
                kills += process.poll() is None
                server.kill()
                time.sleep(0.1)
                server.start()
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
            assert kills > 0
        assert client.hgetall(f"{name}:sums") == {b"left": TOTAL, b"right": TOTAL}


@only_nightly
@pytest.mark.parametrize("point", [*POINTS, *OWN])
def test_server_killed_at_each_point_and_then_both(
    own_redis: Callable[[], RedisServer], name: str, tmp_path: Path, point: str
) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.address) as client:
        for folder in ("alone", "both"):
            arguments = (tmp_path / folder, server.address, f"{name}:{folder}")
            fill(client, arguments[2])
            with watched(client, arguments[2]) as seen, parked(PROGRAM, *arguments, point=f"{point}:3") as child:
                server.kill()
                if folder == "alone":
                    child.send_signal(signal.SIGCONT)  # it asks a server that is away
                    time.sleep(0.5)
                    server.start()
                    code, errors = wake(child)
                    assert code == 0, errors
                else:
                    child.kill()
                    server.start()
                    run_child(PROGRAM, *arguments)
                wait_until(lambda seen=seen: seen[-1] == int(TOTAL), 30)
            assert len(seen) > 3
            assert client.hgetall(f"{arguments[2]}:sums") == {b"left": TOTAL, b"right": TOTAL}


@pytest.mark.parametrize("point", [*POINTS, *OWN] if NIGHTLY else ["before-commit"])
@pytest.mark.nightly
def test_program_that_wakes_up_after_another(
    redis_url: str, client: Any, name: str, tmp_path: Path, point: str
) -> None:
    fill(client, name)
    with watched(client, name), parked(PROGRAM, tmp_path, redis_url, name, point=point) as zombie:
        run_child(PROGRAM, tmp_path, redis_url, name)
        _, errors = wake(zombie)
    assert "FencedError" in errors
    assert client.hgetall(f"{name}:sums") == {b"left": TOTAL, b"right": TOTAL}


@pytest.mark.spark
@only_nightly
@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_driver_killed_at_each_point(redis_url: str, client: Any, name: str, tmp_path: Path, point: str) -> None:
    fill(client, name)
    with watched(client, name):
        kill_child(PROGRAM, tmp_path, redis_url, name, "spark", point=f"{point}:2")
        run_child(PROGRAM, tmp_path, redis_url, name, "spark")
    assert client.hgetall(f"{name}:sums") == {b"left": TOTAL, b"right": TOTAL}


@pytest.mark.spark
@only_nightly
@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_driver_that_wakes_up_after_another(redis_url: str, client: Any, name: str, tmp_path: Path, point: str) -> None:
    fill(client, name)
    with watched(client, name), parked(PROGRAM, tmp_path, redis_url, name, "spark", point=f"{point}:2") as zombie:
        run_child(PROGRAM, tmp_path, redis_url, name, "spark")
        _, errors = wake(zombie)
    assert "FencedError" in errors
    assert client.hgetall(f"{name}:sums") == {b"left": TOTAL, b"right": TOTAL}
