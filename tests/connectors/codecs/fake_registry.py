"""A schema registry in a thread, with the few requests that codecs make."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeRegistry:
    """What the server answers, and what it was asked."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.failures: list[int] = []
        self.requests: list[str] = []
        self.credentials: str | None = None
        self.url = ""

    def add(self, schema: Any, subject: str | None = None, **more: Any) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        known = [number for number, it in self.schemas.items() if it["schema"] == text]
        number = known[0] if known else 100_000 + len(self.schemas)
        if not known:
            self.schemas[number] = {"schema": text, **more}
        if subject is not None and number not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = path.strip("/").split("/")
        unknown = (404, {"error_code": 40403, "message": "Schema not found"})
        if self.failures:
            return self.failures.pop(0), {"message": "come back later"}
        if parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
            return (200, found) if found is not None else unknown
        versions = self.subjects.get(parts[1], [])
        if method == "GET":
            at = len(versions) if parts[3] == "latest" else int(parts[3])
            if not 0 < at <= len(versions):
                return unknown
            return 200, {"id": versions[at - 1], "version": at, **self.schemas[versions[at - 1]]}
        if parts[-1] == "versions":
            return 200, {"id": self.add(body["schema"], parts[1])}
        number = next((it for it in versions if self.schemas[it]["schema"] == body["schema"]), None)
        return (200, {"id": number}) if number is not None else unknown


@contextmanager
def running_registry() -> Iterator[FakeRegistry]:
    """Run a registry on loopback."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply()

        def do_POST(self) -> None:
            self.reply()

        def reply(self) -> None:
            registry.requests.append(f"{self.command} {self.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            wanted = registry.credentials and f"Basic {base64.b64encode(registry.credentials.encode()).decode()}"
            if wanted and self.headers.get("Authorization") != wanted:
                status, answer = 401, {"message": "Unauthorized"}
            else:
                status, answer = registry.answer(self.command, self.path, json.loads(body) if body else None)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
