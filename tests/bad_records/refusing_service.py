"""A service that refuses requests with some records, and ignores requests whose key it has seen."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["RefusingService", "refusing_service"]


class RefusingService:
    """What the service has, and whom it refuses: negative numbers, while `refuses`."""

    def __init__(self) -> None:
        self.url = ""
        self.refuses = True
        self.status = 422
        self.accepted: dict[str, list[Any]] = {}
        self.tries = 0

    @property
    def values(self) -> list[Any]:
        return [value for values in self.accepted.values() for value in values]

    def answer(self, key: str, values: list[Any]) -> int:
        self.tries += 1
        if key in self.accepted:
            assert self.accepted[key] == values
            return 200
        if self.refuses and any(it < 0 for it in values):
            return self.status
        self.accepted[key] = values
        return 200

    def mend(self) -> None:
        self.refuses = False


@contextmanager
def refusing_service() -> Iterator[RefusingService]:
    service = RefusingService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            values = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(service.answer(self.headers["Idempotency-Key"], values))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    service.url = f"http://127.0.0.1:{http.server_port}/"
    try:
        yield service
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
