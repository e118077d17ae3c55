"""Who may use the page of a run: the checks of host, origin and token, and the headers of answers.

A page in a browser can be attacked by other pages in the same browser. A foreign page that resolves its own name to
this machine sends another ``Host``. A foreign page that posts here sends another ``Origin``. Neither has the token,
which every document needs. The page gets the token in the fragment of its address, which browsers send to no server. It
posts the token once, and gets a cookie in return, which scripts can't read and other sites can't use.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from http.cookies import SimpleCookie
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from aiohttp import web

from malflow.connectors.web_server.addresses import is_ip, is_loopback

__all__ = ["CODE_SECONDS", "HEADERS", "Guard", "Handler", "refused"]

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""The headers of every answer."""

_TOKEN_BYTES = 32
"""The random bytes of a token: 256 bits, sufficient by the docs of `secrets`. Half of it would still do; double makes
the URL longer."""

CODE_SECONDS = 60.0
"""The lifetime of a code in seconds: a browser has time to start. Less fails slow ones, more leaves a way in for
longer."""


class Guard:
    """Decides who may use the page.

    Args:
        host: where the server listens.
        hosts: other names by which it is reached, such as the name of a proxy.
        token: the token; None makes one.

    Attributes:
        token: the token.
        port: the port of the server; it names its cookie.
    """

    def __init__(self, host: str, hosts: Collection[str], token: str | None) -> None:
        self.token = secrets.token_urlsafe(_TOKEN_BYTES) if token is None else token
        self.port = 0
        self._is_open = not is_loopback(host)
        self._hosts = {host.lower(), "localhost", *(it.lower() for it in hosts)}
        self._codes: dict[bytes, float] = {}

    def new_code(self) -> str:
        """Return a code that is accepted in place of the token, once and for a minute."""
        code = secrets.token_urlsafe(_TOKEN_BYTES)
        self._codes[code.encode()] = time.monotonic() + CODE_SECONDS
        return code

    @web.middleware
    async def checks(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a request whose host or origin is foreign."""
        if not self._is_own_host(request.headers.getall("Host", [])):
            return refused(421, "the Host of the request is not a name of this page; [serve] hosts may add names")
        origin = request.headers.get("Origin")
        if origin is not None and not _is_of(origin, request.headers["Host"]):
            return refused(403, "the Origin of the request is foreign")
        if request.method == "POST" and origin is None and not self._has_bearer(request):
            return refused(403, "the request has no Origin, and no token in its Authorization")
        return await handler(request)

    def knows(self, request: web.Request) -> bool:
        """Whether a request has the token, or the cookie in its place."""
        cookie = SimpleCookie(request.headers.get("Cookie", ""))
        mine = cookie.get(self.cookie)
        return self._has_bearer(request) or (mine is not None and _same(mine.value, self._cookie_value))

    def accepts(self, token: str) -> bool:
        """Whether a text is the token, or an unused code."""
        now, given = time.monotonic(), token.encode("utf-8", "surrogatepass")
        is_code = False
        for code, until in [*self._codes.items()]:
            if hmac.compare_digest(code, given):
                is_code = until > now
                del self._codes[code]
        return _same(token, self.token) or is_code

    def set_cookie(self, response: web.StreamResponse, *, secure: bool) -> None:
        """Send a browser the cookie that stands for the token."""
        response.set_cookie(self.cookie, self._cookie_value, httponly=True, samesite="Strict", secure=secure, path="/")

    @property
    def cookie(self) -> str:
        """The name of the cookie. It contains the port, since browsers send a host's cookies to all of its ports."""
        return f"malflow-{self.port}"

    @property
    def _cookie_value(self) -> str:
        """The value of the cookie. It does not reveal the token."""
        return hmac.digest(self.token.encode(), f"cookie of {self.cookie}".encode(), "sha256").hex()

    def _has_bearer(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        return _same(given.strip(), self.token) and scheme.lower() == "bearer"

    def _is_own_host(self, given: Collection[str]) -> bool:
        if len(given) != 1:
            return False
        name = _name_of(*given)
        if name is None:
            return False
        return name in self._hosts or (is_ip(name) and (self._is_open or is_loopback(name)))


def refused(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    """Return an answer without a document; the connection is closed after it."""
    response = web.Response(status=status, text=f"{text}\n", headers=headers)
    response.force_close()
    return response


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


def _name_of(authority: str) -> str | None:
    """Return the host from a host and port; None if it has no valid host."""
    try:
        parts = urlsplit(f"//{authority}")
        _ = parts.port
    except ValueError:
        return None
    is_plain = parts.netloc == authority and "@" not in authority
    return parts.hostname if is_plain else None


def _is_of(origin: str, host: str) -> bool:
    """Whether an origin belongs to a page loaded from this host and port."""
    scheme, _, authority = origin.partition("://")
    return scheme in ("http", "https") and authority.lower() == host.lower()
