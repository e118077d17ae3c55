"""``malflow run --serve``: the page's address, who learns its token, and mistakes that stop the command at once."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.conftest import Malflow, Script, malflow, script
from tests.kit.waiting import wait_until
from tests.monitor.test_metrics import collector
from tests.monitor.watching import numbers
from tests.serve.serving import TOKEN, served
from tests.servers.server import free_ports

__all__ = ["malflow", "script"]

pytestmark = pytest.mark.slow

ENDLESS = """
import time

def numbers():
    number = 0
    while True:
        number += 1
        yield number
        time.sleep(0.01)

def build(provider: StreamProvider) -> None:
    provider.new_stream().source("numbers", SingleIteratorSource(numbers())).sink("out", StdOutSink())

if __name__ == "__main__":
    SingleThreadRuntime(build).execute()
"""
SHORT = "SingleThreadRuntime(build_dataflow).execute()\n"


@contextmanager
def running(*arguments: str, terminal: bool, env: dict[str, str] | None = None) -> Iterator[tuple[int, list[str]]]:
    """Run a command within the context, and read its standard error.

    Args:
        arguments: its arguments.
        terminal: whether standard error is a terminal.
        env: further variables of its environment.

    Yields:
        Its pid and the text.
    """
    ours, theirs = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-m", "malflow", "run", "flow.py", *arguments]
    process = subprocess.Popen(
        command, stderr=theirs, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
    )
    os.close(theirs)
    written: list[str] = []

    def read() -> None:
        with suppress(OSError):
            while got := os.read(ours, 1 << 12):
                written.append(got.decode())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield process.pid, written
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        reader.join(60)
        os.close(ours)


def posted(port: int, token: str) -> int:
    """Return the answer to a token."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Content-Type": "application/json", "Origin": f"http://127.0.0.1:{port}"}
    connection.request("POST", "/api/login", json.dumps({"token": token}), headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.fault("Q11")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--serve", "0.0.0.0:0"), "without a token of yours"),
        (("--serve", "192.0.2.1:0", "--set", "serve.token=0123456789abcdef"), "can't listen at 192.0.2.1:0"),
        (("--serve", "127.0.0.1:99999"), "must be a host and a port"),
        (("--serve", "--set", "serve.token=short"), "at least 16 characters"),
        (("--serve", "--set", "serve.address=nonsense"), "must be a host and a port"),
        (("--serve", "{taken}"), "can't listen at {taken}"),
    ],
)
def test_a_page_that_may_not_or_can_not_listen_stops_the_command(
    script: Script, malflow: Malflow, arguments: tuple[str, ...], words: str
) -> None:
    script(SHORT)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        done = malflow("run", "flow.py", *(it.format(taken=taken) for it in arguments))
    assert done.code == 4
    assert words.format(taken=taken) in " ".join(done.err.split())
    assert done.out == ""


def test_serve_takes_an_address_or_none(script: Script, malflow: Malflow) -> None:
    script(SHORT)
    for arguments in (("--serve", "0", "flow.py"), ("flow.py", "--serve", ":0"), ("flow.py", "--serve=127.0.0.1:0")):
        done = malflow("run", *arguments)
        assert done.code == 0, done.err
        assert re.search(r"the page is at http://127\.0\.0\.1:\d+/", done.err)
    both = malflow("run", "flow.py", "--serve", "0", "--set", "serve.address=127.0.0.1:0")
    assert both.code == 2
    assert malflow("run", "--serve", "flow.py", "--set", "serve.address=127.0.0.1:0").code == 0


@pytest.mark.fault("Q12")
def test_the_token_is_shown_in_a_terminal_only(script: Script, place: Path) -> None:
    script(ENDLESS)
    with running("--serve", "127.0.0.1:0", terminal=True) as (pid, written):
        wait_until(lambda: "running" in "".join(written) or "error" in "".join(written), 60)
        found = re.search(r"http://127\.0\.0\.1:(\d+)/#([\w-]{43})", "".join(written))
        assert found is not None
        port, token = int(found[1]), found[2]
        assert posted(port, token) == 204
        assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert token.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        assert f"http://127.0.0.1:{port}/" in next(place.glob("*.json")).read_text()
        assert not [it for it in place.parent.rglob("*") if it.is_file() and token in it.read_text()]
    with running("--serve", "127.0.0.1:0", "-v", terminal=False) as (_, written):
        wait_until(lambda: "running" in "".join(written) or "error" in "".join(written), 60)
    assert "MALFLOW_SERVE__TOKEN" in "".join(written)
    assert "#" not in "".join(written)
    assert not re.search(r"[\w-]{43}", "".join(written))


@pytest.mark.fault("Q13")
def test_a_browser_is_given_a_file_with_a_code(script: Script, place: Path, tmp_path: Path) -> None:
    del place
    script(ENDLESS)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/told.new\nmv {tmp_path}/told.new {tmp_path}/told\n')
    browser.chmod(0o700)
    env = {"BROWSER": str(browser), "DISPLAY": ""}
    with running("--open", "--serve", "0", terminal=True, env=env) as (_, written):
        wait_until((tmp_path / "told").exists, 60)
        wait_until(lambda: "running" in "".join(written) or "error" in "".join(written), 60)
        token = re.search(r"#([\w-]{43})", "".join(written))
        told = (tmp_path / "told").read_text()
        file = Path(re.search(r"file://(\S+)", told)[1])  # type: ignore[index] # it is there
        assert file.stat().st_mode & 0o777 == 0o600
        found = re.search(r"http://127\.0\.0\.1:(\d+)/#([\w-]{43})", file.read_text())
        assert found is not None
        assert token is not None
        assert token[1] not in told + file.read_text()
        assert found[2] not in told
        assert posted(int(found[1]), found[2]) == 204
        assert posted(int(found[1]), found[2]) == 401
    assert not file.exists()


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        ("aiohttp", ["--serve", "0"], "pip install 'malflow[serve]'"),
        ("prometheus_client", ["--serve", "0"], "pip install 'malflow[serve]'"),
        ("opentelemetry", ["--set", "metrics.otlp=http://localhost:1"], "pip install 'malflow[otel]'"),
    ],
)
def test_a_missing_extra_is_named(script: Script, module: str, arguments: list[str], words: str) -> None:
    script(SHORT)
    program = f"import sys; sys.modules[{module!r}] = None; from malflow.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "run", "flow.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 9, done.stderr
    assert words in done.stderr


def test_a_run_without_a_page_imports_no_server(script: Script) -> None:
    script(SHORT)
    program = (
        "import sys\nfrom malflow.cli import main\ntry:\n    main()\nfinally:\n"
        "    bad = {'aiohttp', 'prometheus_client', 'opentelemetry', 'malflow.serve'} & {*sys.modules}\n"
        "    print('imports', sorted(bad))"
    )
    command = [sys.executable, "-c", program, "run", "flow.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "imports []" in done.stdout


def test_a_viewer_sees_the_end(script: Script, place: Path) -> None:
    del place
    script(ENDLESS)
    token = "0123456789abcdef"  # noqa: S105 - of this test
    seen: list[str] = []
    env = {"MALFLOW_SERVE__TOKEN": token}
    with running("--serve", "0", terminal=False, env=env) as (_, written):
        wait_until(lambda: "running" in "".join(written) or "error" in "".join(written), 60)
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", "".join(written))
        assert found is not None
        port = int(found[1])

        def look() -> None:
            with suppress(OSError):
                while True:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                    connection.request("GET", "/api/progress", headers={"Authorization": f"Bearer {token}"})
                    seen.append(json.loads(connection.getresponse().read())["status"])
                    connection.close()
                    time.sleep(0.5)

        viewer = threading.Thread(target=look)
        viewer.start()
        wait_until(lambda: len(seen) > 1, 60)
    viewer.join(60)
    assert seen[-1] == "ended"


FORKS = ENDLESS.replace(
    "number = 0\n", "number = 0\n    if os.fork() == 0:\n        time.sleep(600)\n        os._exit(0)\n", 1
)


@pytest.mark.fault("Q14")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_that_outlives_the_run_holds_neither_port_nor_viewers(script: Script, place: Path) -> None:
    del place
    script("import os\n" + FORKS)
    command = [sys.executable, "-m", "malflow", "run", "flow.py", "--serve", "0"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stderr.readline())
        assert found is not None
        port = int(found[1])
        with socket.create_connection(("127.0.0.1", port), 20) as viewer:
            viewer.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert viewer.recv(1 << 16).startswith(b"HTTP/1.1 ")
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            wait_until(children.read_text, 60)
            process.kill()
            process.wait(60)
            assert viewer.recv(1) == b""
        socket.create_server(("127.0.0.1", port)).close()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        process.stderr.close()  # type: ignore[union-attr] # it is a pipe


def test_a_configured_collector_gets_the_metrics(script: Script, malflow: Malflow) -> None:
    script(SHORT)
    with collector() as (url, received):
        done = malflow("run", "flow.py", "--set", f"metrics.otlp={url}", "--set", "metrics.traces=false")
        assert done.code == 0, done.err
        wait_until(lambda: received, 60)
    assert {path for path, _, _ in received} == {"/v1/metrics"}


def test_a_collector_that_is_no_url_is_a_fault(script: Script, malflow: Malflow) -> None:
    script(SHORT)
    done = malflow("run", "flow.py", "--set", "metrics.otlp=localhost:4318", "--set", "metrics.every=0s")
    assert done.code == 4
    assert "otlp must be a URL" in done.err
    assert "every must be a time above zero" in done.err


def test_ps_shows_where_the_page_is(malflow: Malflow, place: Path) -> None:
    del place
    with served(numbers()) as run:
        told = malflow("ps").out
        assert told.split("\n")[0].rstrip().endswith("page")
        assert f"http://127.0.0.1:{run.port}/" in told
        assert TOKEN not in told + malflow("ps", "--json").out
    assert "page" not in malflow("ps", "--all").out


RELOADED = """
from flows_steps import step
from malflow import SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.testing import PAUSE, ScriptedSource

def build(provider):
    source = ScriptedSource([1, PAUSE] * 100_000)
    provider.new_stream().source("numbers", source).map("step", step).sink("out", VecSink())

if __name__ == "__main__":
    SingleThreadRuntime(build).execute()
"""


@pytest.mark.nightly
def test_a_page_stays_logged_in_over_reloads(script: Script, place: Path) -> None:
    del place
    script(RELOADED, head="")
    steps = Path("flows_steps.py")
    steps.write_text("def step(number):\n    return number\n")
    env = {"MALFLOW_SERVE__ADDRESS": f"127.0.0.1:{free_ports(1)}", "BROWSER": "true"}
    with running("--reload", "--open", terminal=True, env=env) as (_, written):
        wait_until(lambda: "running" in "".join(written) or "error" in "".join(written), 60)
        steps.write_text("def step(number):\n    return number + 1\n")
        wait_until(lambda: "".join(written).count("the page is at") == 2, 60)
        found = re.findall(r"http://127\.0\.0\.1:(\d+)/#([\w-]{43})", "".join(written))
        assert len(found) == 2
        assert found[0] == found[1]
        assert posted(int(found[0][0]), found[0][1]) == 204
