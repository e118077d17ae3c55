"""The limits of the page: slow, silent and many clients can't harm the run."""

from __future__ import annotations

import gc
import logging
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from malflow import SingleThreadRuntime
from malflow.connectors.web_server.server import Limits
from malflow.monitor import Monitor
from malflow.serve import Page, server
from tests.kit.waiting import wait_until
from tests.monitor.watching import numbers
from tests.serve.serving import TOKEN, Served, bearer, served

pytestmark = pytest.mark.slow


def is_closed(end: socket.socket) -> bool:
    """Whether the other side has closed a connection."""
    end.settimeout(0.05)
    try:
        while end.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_the_limits_are_those_of_the_documentation() -> None:
    assert Limits(connections=64, head_seconds=10.0, idle_seconds=15.0, makes_room=True) == server._LIMITS


@pytest.mark.fault("Q8")
def test_a_hundred_slow_clients_keep_no_viewer_away(place: Path) -> None:
    del place
    with served(numbers()) as run:
        slow = [run.connect() for _ in range(100)]
        try:
            for end in slow:
                with suppress(OSError):
                    end.sendall(b"GET /api/progress HTTP/1.1\r\nHost: localhost\r\nX: ")
            before = run.handle.progress.tick
            assert [run.ask("/api/progress").status for _ in range(20)] == [200] * 20
            wait_until(lambda: run.handle.progress.tick > before + 100)
            wait_until(lambda: sum(map(is_closed, slow)) >= 37)
        finally:
            for end in slow:
                end.close()


@pytest.mark.fault("Q15")
def test_a_burst_of_connections_writes_nothing_into_the_log(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    del place
    with served(numbers()) as run:
        held = threading.Event()
        loop = run.page._server.loop  # type: ignore[union-attr] # it listens
        loop.call_soon_threadsafe(held.wait, 0.5)
        ends = [run.connect() for _ in range(100)]
        held.set()
        wait_until(lambda: sum(map(is_closed, ends)) >= 36, 30)
        assert run.ask("/healthz").status == 200
        for end in ends:
            end.close()
    gc.collect()
    assert not [it for it in caplog.records if it.levelno >= logging.WARNING]


@pytest.mark.fault("Q9")
def test_a_request_and_an_idle_connection_have_a_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del place
    monkeypatch.setattr(server, "_LIMITS", Limits(64, 0.3, 0.6, makes_room=True))
    monkeypatch.setattr("malflow.serve.routes._BODY_SECONDS", 0.3)
    head = f"POST /api/login HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    body = "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    with served(numbers(), control=True) as run:
        silent, half, slow, idle = (run.connect() for _ in range(4))
        half.sendall(head.encode())
        slow.sendall((head + body).encode())
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
        for end in (silent, half, slow, idle):
            wait_until(lambda end=end: is_closed(end))  # type: ignore[misc] # inferred
            end.close()


def test_a_large_body_is_refused(steered: Served) -> None:

    big = b'{"operator": "' + b"x" * 70_000 + b'"}'
    assert steered.post("/api/replay", big).status == 413


@pytest.mark.fault("Q15")
def test_garbage_closes_a_connection_and_nothing_else(run: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for data in (b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"x" * 20_000):
            with run.connect() as end:
                end.sendall(data)
                assert end.recv(1 << 16).startswith(b"HTTP/1.") or data.startswith(b"x" * 100)
    assert run.ask("/api/progress").status == 200
    assert not [it for it in caplog.records if it.levelno >= logging.WARNING]


def test_no_request_is_logged(run: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        run.ask("/api/progress?after=123456")
    assert "123456" not in caplog.text


@pytest.mark.fault("Q10")
def test_requests_that_wait_are_bounded(place: Path) -> None:
    del place
    may_end = threading.Event()

    def slow(number: int) -> int:
        may_end.wait(60)
        return number

    page = Page("127.0.0.1:0", token=TOKEN)
    handle = SingleThreadRuntime(numbers(slow), listeners=[Monitor(page)]).start()
    try:
        wait_until(lambda: page.address is not None)
        run = Served(handle, page)
        codes: list[int] = []
        askers = [
            threading.Thread(target=lambda: codes.append(run.ask("/api/time?timeout=60").status)) for _ in range(8)
        ]
        for it in askers:
            it.start()
        wait_until(lambda: len([it for it in threading.enumerate() if it.name == "malflow-page-wait"]) == 8)
        assert run.ask("/api/time").document["error"]["kind"] == "Busy"
        assert run.ask("/api/progress").status == 200
        assert run.ask("/healthz").status == 200
        assert codes == [], "it is answered while the others wait"
        may_end.set()
        for it in askers:
            it.join(60)
        assert codes == [200] * 8
        assert run.ask("/api/time?timeout=30").status == 200
    finally:
        may_end.set()
        handle.stop()
        handle.await_termination(60)
        page.close()


def test_an_answer_that_is_too_long_is_an_error(run: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("malflow.monitor.documents.LONGEST_ANSWER", 200)
    reply = run.ask("/api/graph")
    assert (reply.status, reply.document["error"]["kind"]) == (500, "TooLarge")


def test_an_address_that_is_taken_does_not_end_a_run(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    del place
    with socket.create_server(("127.0.0.1", 0)) as taken:
        page = Page(f"127.0.0.1:{taken.getsockname()[1]}")
        with served(numbers()) as other:
            handle = SingleThreadRuntime(numbers(), listeners=[Monitor(page)]).start()
            wait_until(lambda: handle.progress.tick > 10)
            handle.stop()
            assert handle.await_termination(60)
            assert other.ask("/healthz", {}).status == 200
    assert "no page shows this run, which continues" in caplog.text
    assert page.url is None


def test_the_end_of_the_server_does_not_end_a_run(place: Path) -> None:
    del place
    with served(numbers()) as run:
        run.page.close()
        before = run.handle.progress.tick
        wait_until(lambda: run.handle.progress.tick > before + 10)


def test_a_plain_run_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a plain run listens")

    monkeypatch.setattr(socket.socket, "listen", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    handle = SingleThreadRuntime(numbers()).start()
    wait_until(lambda: handle.progress.tick > 10)
    handle.stop()
    assert handle.await_termination(60)


def test_nobody_without_the_token_waits_for_the_run(run: Served) -> None:
    for _ in range(20):
        assert run.ask("/api/why", bearer("z" * 20)).status == 401
    assert not [it for it in threading.enumerate() if it.name == "malflow-page-wait"]
