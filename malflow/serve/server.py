"""The page of a run: its server, and the addresses by which browsers reach it."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from malflow.connectors.web_server.addresses import check_token, is_loopback, place_of
from malflow.connectors.web_server.server import Limits, WebServer
from malflow.errors import GraphError
from malflow.serve.access import HEADERS, Guard
from malflow.serve.routes import Routes

if TYPE_CHECKING:
    from malflow.monitor.watch import Watch

__all__ = ["Page"]

_LIMITS: Final = Limits(connections=64, head_seconds=10.0, idle_seconds=15.0, makes_room=True)

_LAST_SECONDS: Final = 1.5
"""The longest time for which the end of the process waits while somebody looks at the page."""
_TURN: Final = 0.05
"""The seconds between two checks whether all viewers have seen the end. Half of it wakes twice as often, double delays
the end of the process a little."""


class Page:
    """A page that shows a run in a browser, and serves its documents, metrics and health to other programs.

    It listens from the start of a run until `close` or the end of the process, on a thread of its own, and can neither
    end nor slow the run. Everything but the files of the page and the health needs the token. It is part of `url` but
    not of `address`.

    Args:
        address: the host and port; port 0 for any free one. A host other than loopback needs a token.
        control: whether those with the token may steer the run: stop, rescale, take snapshots, replay dead letters.
        token: the token, of 16 characters or more; None makes one of 32 bytes.
        metrics_token: whether ``/metrics`` needs the token.
        hosts: other names by which the page is reached, such as the name of a proxy or a container.

    Raises:
        GraphError: if an argument is not valid, or other machines could reach it without a token of yours.

    >>> page = Page("127.0.0.1:0")
    >>> page.address is None  # until a run is shown
    True
    """

    def __init__(
        self,
        address: str = "127.0.0.1:8642",
        *,
        control: bool = False,
        token: str | None = None,
        metrics_token: bool = True,
        hosts: Sequence[str] = (),
    ) -> None:
        self._place = place_of(address)
        if token is None and not is_loopback(self._place.host):
            raise GraphError(
                f"the page would be open to other machines at {self._place} without a token of yours; set the token, "
                "or use the address 127.0.0.1"
            )
        check_token(token)
        self._guard = Guard(self._place.host, hosts, token)
        self._routes = Routes(self._guard, control=control, metrics_token=metrics_token)
        self._server: WebServer | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @property
    def address(self) -> str | None:
        """Its URL, without the token; None if it does not listen."""
        server = self._server
        return None if server is None or not server.is_alive else f"http://{server.place}/"

    @property
    def url(self) -> str | None:
        """Its URL with the token in the fragment (browsers send it to nobody); None if it does not listen."""
        return None if self.address is None else f"{self.address}#{self._guard.token}"

    def code(self) -> str:
        """Return a code that a browser may post in place of the token, once and within a minute."""
        return self._guard.new_code()

    def open(self) -> None:
        """Listen, if it does not yet.

        Raises:
            OSError: if it can't listen at its address.
        """
        with self._lock:
            if self._server is not None and self._server.is_alive:
                return
            server = WebServer(
                self._routes.application(),
                self._place,
                _LIMITS,
                name="malflow-page",
                error_headers={**HEADERS, "Server": "malflow"},
            )
            self._guard.port = server.place.port
            if self._server is None:
                atexit.register(self._at_exit)
            self._server = server

    def show(self, watch: Watch, /) -> None:
        """Show a run, until another one is shown.

        Raises:
            OSError: if it can't listen at its address.
        """
        self._routes.watch = watch
        self.open()

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            if self._server is not None:
                self._server.stop()

    def _at_exit(self) -> None:
        """Stop listening, after a moment in which viewers see the end of the run; a forked child does nothing."""
        if os.getpid() != self._pid:
            return
        deadline = time.monotonic() + _LAST_SECONDS
        while self._routes.has_unaware_viewer and time.monotonic() < deadline:
            time.sleep(_TURN)
        self.close()

    def __repr__(self) -> str:
        return f"Page({str(self._place)!r})"
