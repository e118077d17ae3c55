"""The control socket: one line in and one out, whatever is sent, and by whom."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.monitor import run_files
from malflow.monitor.asks import Ask, BadRequest, parsed
from malflow.monitor.control_socket import ControlSocket
from malflow.monitor.documents import Document, document
from tests.kit.waiting import wait_until
from tests.monitor.watching import connected, line_of

pytestmark = pytest.mark.slow

ASKS_PROGRESS = b'{"malflow": 1, "do": "progress"}\n'


@contextmanager
def listening(answer: Callable[[Ask], Document]) -> Iterator[Path]:
    """Within the context, a control socket answers."""
    path = run_files.place() / "0123abcd.sock"
    control = ControlSocket(path, answer)
    try:
        yield path
    finally:
        control.close()
        control.join(30)
        assert not [it for it in threading.enumerate() if it.name == "malflow-control"]


def plain(ask: Ask) -> Document:
    """Return the request."""
    return document("done", {"do": ask.do, "given": dict(ask.given)})


def exchanged(path: Path, data: bytes) -> Any:
    """Return the answer to a request."""
    with connected(path) as end:
        with suppress(BrokenPipeError, ConnectionResetError):
            end.sendall(data)
        return line_of(end)


def error_of(answer: Any) -> str:
    """Return the text of the error in an answer."""
    assert set(answer) == {"malflow", "kind", "error"}
    assert answer["kind"] == "error"
    text: str = answer["error"]["message"]
    return text


def test_a_line_in_and_a_line_out(place: Path) -> None:
    with listening(plain) as path:
        assert path.stat().st_mode & 0o777 == 0o600
        asked = b'{"malflow": 1, "do": "rescale", "parallelism": 3, "timeout": 0.5}\nand more'
        assert exchanged(path, asked) == {
            "malflow": 1,
            "kind": "done",
            "do": "rescale",
            "given": {"parallelism": 3, "timeout": 0.5},
        }


@pytest.mark.fault("M4")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\x00\xff\x80", "not a line of JSON"),
        (b"GET / HTTP/1.1\r", "not a line of JSON"),
        (b"[" * 60_000, "not a line of JSON"),
        (b'{"malflow": 1, "do": ' + b"9" * 5000 + b"}", "not a line of JSON"),
        (b"", "not a line of JSON"),
        (b"[1]", "not an object"),
        (b"{}", "understands 1"),
        (b'{"malflow": 2, "do": "stop"}', "understands 1"),
        (b'{"malflow": true, "do": "stop"}', "understands 1"),
        (b'{"malflow": 1}', '"do": None'),
        (b'{"malflow": 1, "do": ["stop"]}', "do"),
        (b'{"malflow": 1, "do": "stpo"}', "did you mean 'stop'"),
        (b'{"malflow": 1, "do": "__class__"}', "there are 'progress'"),
        (b'{"malflow": 1, "do": "stop", "now": 1}', "no argument 'now'"),
        (b'{"malflow": 1, "do": "rescale"}', "needs parallelism"),
        (b'{"malflow": 1, "do": "rescale", "parallelism": true}', "number of workers"),
        (b'{"malflow": 1, "do": "rescale", "parallelism": 0}', "number of workers"),
        (b'{"malflow": 1, "do": "rescale", "parallelism": 1e300}', "number of workers"),
        (b'{"malflow": 1, "do": "snapshot", "timeout": NaN}', "seconds from 0"),
        (b'{"malflow": 1, "do": "snapshot", "timeout": -1}', "seconds from 0"),
        (b'{"malflow": 1, "do": "why", "operator": {"a": 1}}', "name of an operator"),
        (b'{"malflow": 1, "do": "events", "after": "x"}', "number of an event"),
    ],
)
def test_a_line_that_is_no_request(place: Path, line: bytes, words: str) -> None:
    with listening(plain) as path:
        assert words in error_of(exchanged(path, line + b"\n"))
        assert exchanged(path, ASKS_PROGRESS)["do"] == "progress"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda it: st.lists(it) | st.dictionaries(st.text(), it)
    )
)
def test_any_json_is_a_request_or_is_refused(content: Any) -> None:
    for wrapped in (content, {"malflow": 1, "do": content}, {"malflow": 1, "do": "rescale", "parallelism": content}):
        with pytest.raises(BadRequest):
            parsed(json.dumps(wrapped).encode())


@pytest.mark.fault("M4")
def test_half_a_line_and_a_line_without_end(place: Path) -> None:
    with listening(plain) as path:
        with connected(path) as end:
            end.sendall(ASKS_PROGRESS[:-1])
            end.shutdown(socket.SHUT_WR)
            assert "no end" in error_of(line_of(end))
        sent = 0
        with connected(path) as end:
            with suppress(BrokenPipeError, ConnectionResetError):
                while sent < 1 << 30:
                    sent += end.send(b"x" * (1 << 20))
            assert sent < 8 << 20, "it takes no more after the first 64 kB"
            assert "at most 65,536 bytes" in error_of(line_of(end))
        with connected(path):
            pass  # it is closed without a word
        assert exchanged(path, ASKS_PROGRESS)["do"] == "progress"


@pytest.mark.fault("M6")
def test_a_hundred_half_requests_keep_nobody_else_out(place: Path) -> None:
    with listening(plain) as path, ExitStack() as stack:
        ends = [stack.enter_context(connected(path)) for _ in range(100)]
        for end in ends:
            with suppress(BrokenPipeError, ConnectionResetError):
                end.sendall(b'{"malflow": 1,')
        assert exchanged(path, ASKS_PROGRESS)["do"] == "progress"
        closed = [end for end in ends[:90] if line_of(end) is None]
        assert len(closed) == 90


@pytest.mark.fault("M6")
def test_slow_clients_are_closed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("malflow.monitor.control_socket._SECONDS", 0.2)
    much = document("done", {"much": "x" * 4_000_000})
    with listening(lambda _: much) as path, connected(path) as silent, connected(path) as slow:
        slow.sendall(ASKS_PROGRESS)
        assert line_of(silent) is None
        time.sleep(0.5)
        received = b""
        with suppress(ConnectionResetError):
            while got := slow.recv(1 << 16):
                received += got
        assert 0 < len(received) < 4_000_000
        assert len(exchanged(path, ASKS_PROGRESS)["much"]) == 4_000_000


def test_an_answer_that_is_too_long_and_one_that_fails(place: Path) -> None:
    def answer(ask: Ask) -> Document:
        if ask.do == "progress":
            return document("done", {"much": "x" * 9_000_000})
        raise RuntimeError("secret")

    with listening(answer) as path:
        assert "more than 8,388,608 bytes" in error_of(exchanged(path, ASKS_PROGRESS))
        failed = error_of(exchanged(path, b'{"malflow": 1, "do": "stop"}\n'))
        assert failed == "stop failed: RuntimeError"
        assert "RuntimeError" in error_of(exchanged(path, b'{"malflow": 1, "do": "why"}\n'))


@pytest.mark.fault("M6")
def test_those_who_wait_for_the_run_keep_nobody_else_out(place: Path) -> None:
    free = threading.Event()

    def answer(ask: Ask) -> Document:
        if ask.do == "why":
            free.wait(60)
        return plain(ask)

    with listening(answer) as path, ExitStack() as stack:
        ends = [stack.enter_context(connected(path)) for _ in range(8)]
        for end in ends:
            end.sendall(b'{"malflow": 1, "do": "why"}\n')
        wait_until(lambda: sum(it.name == "malflow-control-wait" for it in threading.enumerate()) == 8)
        assert "wait for the run" in error_of(exchanged(path, b'{"malflow": 1, "do": "snapshot"}\n'))
        assert exchanged(path, ASKS_PROGRESS)["do"] == "progress"
        ends[0].close()  # it has gone: nobody takes its answer
        ends[1].sendall(b"impatient")
        free.set()
        assert [line_of(end)["do"] for end in ends[1:]] == ["why"] * 7


@pytest.mark.fault("M5")
@pytest.mark.skipif(os.geteuid() != 0, reason="this user may not become another one")
def test_another_user_is_closed_without_an_answer(place: Path) -> None:
    with listening(plain) as path:
        for folder in (path.parent.parent, path.parent):  # as if the folder had not kept him out
            folder.chmod(0o755)
        path.chmod(0o666)
        read, written = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setuid(12345)
                with connected(path) as end:
                    with suppress(OSError):
                        end.sendall(ASKS_PROGRESS)
                    answer = line_of(end)
                os.write(written, b"nothing" if answer is None else b"answer")
            finally:
                os._exit(0)
        os.close(written)
        with os.fdopen(read, "rb") as result:
            assert result.read() == b"nothing"
        os.waitpid(child, 0)
        assert exchanged(path, ASKS_PROGRESS)["do"] == "progress"


class Counting(ControlSocket):
    """Counts how often it tries to accept a connection."""

    tries = 0

    def _accept(self) -> None:
        self.tries += 1
        super()._accept()


@pytest.mark.fault("M6")
def test_too_many_open_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("malflow.monitor.control_socket._PAUSE", 0.1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    path = run_files.place() / "0123abcd.sock"
    with ExitStack() as stack:
        control = Counting(path, plain)
        stack.callback(control.join, 30)
        stack.callback(control.close)
        assert exchanged(path, ASKS_PROGRESS)["do"] == "progress"
        end = stack.enter_context(socket.socket(socket.AF_UNIX))
        used = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208 - only the names
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, limits[1]))
        try:
            with suppress(OSError):
                while True:
                    stack.callback(os.close, os.dup(0))
            end.connect(str(path))
            end.sendall(ASKS_PROGRESS)
            wait_until(lambda: control.tries > 2)
            time.sleep(0.5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert control.tries < 50, "it waits, and does not try without end"
        end.settimeout(30)
        assert line_of(end)["do"] == "progress"


@pytest.mark.fault("M6")
def test_a_client_that_has_gone_sends_no_signal(place: Path) -> None:
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as scripts do that write to a pipe
    asked, gone = threading.Event(), threading.Event()

    def answer(ask: Ask) -> Document:
        if ask.do == "why":
            asked.set()
            gone.wait(30)
        return plain(ask)

    try:
        with listening(answer) as path:
            with connected(path) as end:
                end.sendall(b'{"malflow": 1, "do": "why"}\n')
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                assert asked.wait(30)
            gone.set()
            assert exchanged(path, ASKS_PROGRESS)["do"] == "progress"
    finally:
        signal.signal(signal.SIGPIPE, before)
