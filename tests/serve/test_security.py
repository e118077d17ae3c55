"""The security of the page's server: one test or more for each requirement."""

from __future__ import annotations

import json
import logging
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from malflow.errors import GraphError
from malflow.monitor.asks import ACTS, QUESTIONS
from malflow.serve import Page
from malflow.serve.access import Guard
from malflow.serve.files import page_files
from tests.serve.serving import TOKEN, Served, bearer, served

pytestmark = pytest.mark.slow

JSON = {"Content-Type": "application/json"}
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
WRONG: list[dict[str, str]] = [
    {},
    bearer(""),
    bearer(TOKEN[:-1]),
    bearer(TOKEN + "x"),
    bearer(TOKEN.upper()),
    bearer("é" * 20),
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": TOKEN},
    {"Cookie": f"malflow-8642={TOKEN}"},
    {"X-Token": TOKEN},
]


def login(run: Served, token: Any = TOKEN, **headers: str) -> Any:
    """Return the answer to a token that is posted as by the page."""
    given = {**JSON, "Origin": run.origin, **headers}
    return run.ask("/api/login", given, method="POST", body={"token": token})


def cookie_of(run: Served) -> dict[str, str]:
    """Return the header with the page's cookie for the token."""
    reply = login(run)
    assert reply.status == 204
    return {"Cookie": reply.headers["Set-Cookie"].partition(";")[0]}


@pytest.mark.fault("Q1")
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.com:80", "127.0.0.1.evil:80"])
def test_other_addresses_than_loopback_need_a_token(address: str) -> None:
    with pytest.raises(GraphError, match="without a token of yours"):
        Page(address)
    Page(address, token=TOKEN)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "[::1]:0", "0", ":0", "127.3.2.1:0"])
def test_loopback_needs_none(address: str) -> None:
    Page(address)


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 15, "with spaces in the token", "ümlaute-are-not-ascii", 1, b"x" * 20]
)
def test_weak_tokens_are_refused(token: Any) -> None:
    with pytest.raises(GraphError, match="at least 16 characters"):
        Page(token=token)


def test_a_token_that_is_made_has_32_bytes_and_is_new() -> None:
    tokens = {Guard("127.0.0.1", (), None).token for _ in range(50)}
    assert len(tokens) == 50
    assert all(len(it) == 43 for it in tokens)


@pytest.mark.fault("Q2")
@pytest.mark.parametrize("headers", WRONG)
@pytest.mark.parametrize("path", ["/api/progress", "/api/why", "/api/nothing", "/metrics"])
def test_reads_need_the_token(run: Served, path: str, headers: Mapping[str, str]) -> None:
    reply = run.ask(path, headers)
    assert (reply.status, reply.body) == (401, b"the token is wrong or missing\n")


def test_every_document_needs_the_token(run: Served) -> None:
    for word in QUESTIONS:
        assert run.ask(f"/api/{word}", {}).status == 401
    for word in ACTS:
        assert run.ask(f"/api/{word}", {**JSON, "Origin": run.origin}, method="POST", body={}).status == 401


@pytest.mark.fault("Q3")
@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], TOKEN + "\0", "x" * 60_000, "\ud800", None, 7, [TOKEN]])
def test_wrong_tokens_get_no_cookie(run: Served, token: Any) -> None:
    reply = login(run, token)
    assert reply.status == 401
    assert "Set-Cookie" not in reply.headers


def test_a_token_of_a_megabyte_is_refused(run: Served) -> None:
    assert login(run, "x" * 1_000_000).status == 413
    assert run.ask("/api/progress", bearer("x" * 1_000_000)).status == 400


def test_the_cookie_stands_for_the_token(run: Served) -> None:
    reply = login(run)
    name, _, rest = reply.headers["Set-Cookie"].partition("=")
    assert name == f"malflow-{run.port}"
    value, *attributes = rest.split("; ")
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    assert TOKEN not in value
    assert run.ask("/api/progress", {"Cookie": f"other=1; {name}={value}"}).status == 200
    assert run.ask("/api/progress", bearer(value)).status == 401


def test_a_code_is_good_for_one_use(run: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    code = run.page.code()
    assert login(run, code).status == 204
    assert login(run, code).status == 401
    late = run.page.code()
    monkeypatch.setattr("time.monotonic", lambda: 1e12)
    assert login(run, late).status == 401


@pytest.mark.fault("Q4")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost.",
        "",
        "192.0.2.1",
        "user@localhost",
        "[::1",
        "a b",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/progress", "/healthz", "/metrics", "/static/app.js"])
def test_foreign_hosts_are_misdirected(run: Served, path: str, host: str) -> None:
    assert run.ask(path, {**bearer(), "Host": host.format(port=run.port)}).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.2:80", "[::1]:9"])
def test_hosts_of_loopback_are_served(run: Served, host: str) -> None:
    assert run.ask("/api/progress", {**bearer(), "Host": host}).status == 200


def test_other_names_are_served_if_they_are_known() -> None:
    guard = Guard("0.0.0.0", ("Flow.example",), TOKEN)  # noqa: S104 - nothing listens
    served = [guard._is_own_host([it]) for it in ("flow.example:443", "192.0.2.1", "[2001:db8::1]:1", "evil.example")]
    assert served == [True, True, True, False]
    assert not guard._is_own_host([])
    assert not guard._is_own_host(["localhost", "localhost"])


@given(st.text(string.ascii_letters + string.digits + ".:@/[]-#? \\%", max_size=20))
def test_no_other_text_is_a_host_of_loopback(host: str) -> None:
    """Compare with a list of the right hosts, since a parser can be fooled."""
    guard = Guard("127.0.0.1", (), TOKEN)
    name = host.lower()
    if name.count(":") == 1:
        name, _, port = name.partition(":")
        is_right = port == "" or (port.isdigit() and int(port) <= 65_535)
    else:
        is_right = True
    octets = name.split(".")
    is_127 = (
        len(octets) == 4
        and octets[0] == "127"
        and all(it.isdigit() and int(it) < 256 and str(int(it)) == it for it in octets)
    )
    if guard._is_own_host([host]):
        assert "[" in host or (is_right and (name == "localhost" or is_127))


@pytest.mark.fault("Q5")
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost:{port}",
        "file://",
        "http://127.0.0.1:{port}.evil",
    ],
)
def test_foreign_origins_are_refused(steered: Served, origin: str) -> None:
    headers = {**JSON, **bearer(), "Origin": origin.format(port=steered.port)}
    assert steered.ask("/api/stop", headers, method="POST", body={}).status == 403
    assert steered.ask("/api/progress", headers).status == 403
    assert steered.ask("/api/login", headers, method="POST", body={"token": TOKEN}).status == 403
    assert not steered.handle.is_stopping


def test_a_post_with_a_cookie_needs_an_origin(steered: Served) -> None:
    cookie = cookie_of(steered)
    assert steered.ask("/api/stop", {**JSON, **cookie}, method="POST", body={}).status == 403
    with_origin = {**JSON, **cookie, "Origin": steered.origin}
    assert steered.ask("/api/rescale", with_origin, method="POST", body={"parallelism": 1}).status == 200
    assert not steered.handle.is_stopping


@pytest.mark.fault("Q6")
@pytest.mark.parametrize("act", sorted(ACTS))
def test_acts_need_control(run: Served, act: str) -> None:
    reply = run.post(f"/api/{act}", {"parallelism": 2, "operator": "count"})
    assert (reply.status, reply.document["error"]["kind"]) == (403, "NotAllowed")
    assert run.ask(f"/api/{act}").status == 405
    assert not run.handle.is_stopping


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_acts_need_json(steered: Served, kind: str) -> None:
    assert steered.ask("/api/stop", {**bearer(), "Content-Type": kind}, method="POST", body=b"{}").status == 415
    assert not steered.handle.is_stopping


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/progress", "/api/nothing", "/healthz", "/metrics", "/x"])
@pytest.mark.parametrize("headers", [{}, bearer(), {**bearer(), "Host": "evil.example"}])
def test_every_answer_has_the_headers(run: Served, path: str, headers: Mapping[str, str]) -> None:
    found = run.ask(path, headers).headers
    assert found["Content-Security-Policy"] == CSP
    assert "unsafe" not in found["Content-Security-Policy"]
    assert found["X-Content-Type-Options"] == "nosniff"
    assert found["Referrer-Policy"] == "no-referrer"
    assert found["Cache-Control"] == "no-store"
    assert "Server" not in found
    assert not any(name.startswith("Access-Control-") for name in found)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /<img src=x onerror=alert(1)> HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
        b"<script>alert(1)</script>\r\n\r\n",
        b"GET / HTTP/1.1\r\n<b>x</b>\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_answers_to_garbage_have_the_headers_and_quote_nothing(run: Served, data: bytes) -> None:
    with run.connect() as end:
        end.sendall(data)
        head, _, body = b"".join(iter(lambda: end.recv(1 << 16), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 400")
    assert f"Content-Security-Policy: {CSP}".encode() in head
    assert b"nosniff" in head
    assert b"aiohttp" not in head
    assert body == b"the request can't be answered\n"


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "X"]),
    path=st.text(st.characters(codec="ascii", exclude_characters=" \r\n\t\0"), max_size=20).map(lambda it: f"/api/{it}")
    | st.sampled_from([f"/api/{it}" for it in sorted(QUESTIONS | ACTS)] + ["/metrics"]),
    headers=st.dictionaries(
        st.sampled_from(["Authorization", "Cookie", "Origin", "X-Forwarded-For", "X-Forwarded-Host", "Content-Type"]),
        st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=60),
    ),
    body=st.binary(max_size=100),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_request_without_the_token_gets_a_document(
    run: Served, method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", "Connection: close"]
    head = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""])
    with run.connect() as end:
        end.sendall(head.encode("latin-1") + body)
        answer = b"".join(iter(lambda: end.recv(1 << 16), b""))
    status = int(answer.split(None, 2)[1])
    assert 400 <= status < 500
    assert b'"malflow"' not in answer
    assert b"Set-Cookie" not in answer
    assert not run.handle.is_stopping


@pytest.mark.fault("Q7")
@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static/../../../../../../etc/passwd",
        "/static//etc/passwd",
        "/static/..\\server.py",
        "/static/app.js%00",
        "/static/",
        "/static/.",
        "/static/vendor",
        "/static/__init__.py",
        "/../serve/server.py",
        "/index.html",
    ],
)
def test_paths_lead_to_files_of_the_page_only(run: Served, path: str) -> None:
    assert run.ask(path).status == 404


@given(st.text(max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_has_one_of_a_few_names(name: str) -> None:
    assert (page_files().get(name) is not None) == (name in set(page_files()))
    assert not any(it.startswith(("/", ".")) or ".." in it for it in page_files())


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_token_and_tells_nothing_else(run: Served, path: str) -> None:
    reply = run.ask(path, {})
    assert (reply.status, reply.body) == (200, b"ok\n")


def test_metrics_may_be_open() -> None:
    from tests.monitor.watching import numbers  # noqa: PLC0415

    with served(numbers(), metrics_token=False) as run:
        assert run.ask("/metrics", {}).status == 200
        assert run.ask("/api/progress", {}).status == 401


def test_the_token_is_in_no_log_run_file_or_document(
    place: Path, caplog: pytest.LogCaptureFixture, steered: Served
) -> None:
    from tests.monitor.watching import numbers  # noqa: PLC0415

    with caplog.at_level(logging.DEBUG), served(numbers(), control=True) as run:
        cookie = cookie_of(run)
        secret = cookie["Cookie"].partition("=")[2]
        texts = [path.read_text() for path in place.glob("*.json")]
        assert any(f"127.0.0.1:{run.port}" in it for it in texts)
        texts.append(repr(run.page))
        texts += [run.ask(f"/api/{word}").body.decode() for word in sorted(QUESTIONS)]
        texts += [run.ask("/metrics").body.decode(), run.ask("/", bearer("y" * 30)).body.decode()]
        texts += [json.dumps(dict(run.ask("/api/page").headers))]
    texts.append(caplog.text)
    for text in texts:
        assert TOKEN not in text
        assert secret not in text
