"""The routes of the page of a run, and their documents.

Every document is ``{"malflow": 1, "kind": ...}``, as on the control socket and with ``--json``. Times are ISO 8601 in
UTC, sizes are bytes, durations are seconds, and users' values are texts. All routes but the files and the health need
the token: ``Authorization: Bearer TOKEN``, or the cookie that ``POST /api/login`` sets. Without it, the answer is 401.

========================  ==========================================================================================
``GET /``                 ``index.html``
``GET /static/NAME``      the other files of the page, such as ``/static/app.js`` and ``/static/vendor/preact.js``
``GET /metrics``          the metrics, for Prometheus; needs the token unless ``metrics_token = false``
``GET /healthz``          200 or 503: the last tick ended less than 60 s ago, or the run has a reason to wait
``GET /readyz``           200 or 503: the run has its state and is alive, and no record waits too long for a snapshot
``POST /api/login``       ``{"token": TOKEN}``: 204 with the cookie, or 401. The page takes the token from the fragment
                          of its address, ``#TOKEN``, posts it, and removes it from the address
``GET /api/page``         ``page``: ``control``, ``samples``, ``version``, ``run``, ``job``, ``runtime``
``GET /api/progress``     ``progress``, as on the control socket, with ``number``: it grows when anything but the time
                          has changed. With ``?after=NUMBER``, the answer is 304 without a body if nothing has. The
                          ``status`` of a finished run is ``ended`` or ``failed``
``GET /api/graph``        ``graph``: ``nodes``, ``edges``, ``stages``, ``width``, ``height``, as from `malflow.draw`
``GET /api/drawing``      ``drawing``: ``text``, as from `malflow.draw`, with its arguments, such as ``?format=mermaid``
``GET /api/history``      ``history``: ``at``, ``ticks``, ``operators`` (``name``, ``taken``, ``busy``, ``given`` by
                          output): columns of the samples of the last ten minutes; ``?last=N`` for the last N
``GET /api/events``       ``events``: ``events``, without ticks; each has ``number``, ``at``, ``event`` and the fields
                          of its class in `malflow.events`; ``?after=NUMBER`` for the events after that one
``GET /api/snapshots``    ``snapshots``: the events of this run's snapshots, including failed ones
``GET /api/why``          ``why``: ``cause``, ``text``, ``operator``, ``stops_at``, ``is_fault``, ``facts``; for
                          all sinks, or for ``?operator=NAME``. It waits for the tick, and takes up to two seconds
``GET /api/time``         ``time``: ``rows`` for the operators that wait for an epoch, ``epochs``, ``late``, ``text``
``GET /api/letters``      ``letters``: ``total``, and ``letters`` (``operator``, ``id``, ``key``, ``value``,
                          ``timestamp``, ``error``, ``message``, ``place``, ``attempts``, ``is_parked``, ``tick``,
                          ``worker``, ``at``), the oldest first; ``?operator=NAME``, ``?limit=100``, or ``?id=ID`` for
                          one with its ``trace``. It waits for the tick
``GET /api/state``        ``states``: ``operator``, ``tick``, and ``states`` (``key``, ``value``); ``?operator=NAME``
                          and ``?key=KEY``, a text or a Python literal, or ``?limit=100`` for the first keys
``GET /api/sample``       ``samples``: ``operator``, and the last ``samples`` (``number``, ``at``, ``tick``, ``output``,
                          ``key``, ``value``, ``timestamp``); ``?operator=NAME``, ``?after=NUMBER``. An operator
                          is sampled while somebody asks, if ``[serve] samples = true``
``POST /api/snapshot``    ``done`` with ``snapshot``
``POST /api/rescale``     ``done`` with ``parallelism``; ``{"parallelism": 4}``
``POST /api/stop``        ``accepted``
``POST /api/replay``      ``letters_done`` with ``done``, ``late``, ``texts``; ``{"operator": NAME, "ids": [ID, ...]}``;
                          all letters if there are no ``ids``
``POST /api/discard``     the same, but the letters are removed
========================  ==========================================================================================

Requests that wait for the run take a ``timeout`` of up to 600 seconds, by default 30. If an act is not done by then,
the answer is ``accepted`` with 202. If a question is not answered by then, the answer is an error. A POST needs
``control = true`` (else 403), the type ``application/json``, and an ``Origin`` that equals its ``Host``; the body is an
object, possibly empty.

Errors are documents of kind ``error``, whose ``error`` has ``kind`` and ``message``: 400 for a request that is not
understood, 404 for an unknown operator, 409 for a request that the run refuses, and 503 before there is a run
(``NoRun``), while too many requests wait (``Busy``), or if its tick does not end in time (``Timeout``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from malflow.monitor.asks import ACTS, MOST_WAITING, QUESTIONS, WAITING, Ask, BadRequest, asked, asked_in_texts
from malflow.monitor.documents import Document, as_answer, document, refusal
from malflow.monitor.meters import is_alive, is_ready
from malflow.monitor.prometheus import exposition
from malflow.serve.access import HEADERS, Guard, Handler, refused
from malflow.serve.files import page_files
from malflow.serve.numbered import Numbered
from malflow.version import __version__

if TYPE_CHECKING:
    from malflow.monitor.watch import Watch

__all__ = ["Routes"]

_log = logging.getLogger("malflow.serve")

_BODY_BYTES: Final = 64 * 1024
"""The largest body of a request in bytes, far beyond a word with its arguments; the control socket has the same
limit."""

_BODY_SECONDS: Final = 10.0
"""The most seconds for a body to arrive. Half of it drops clients on slow networks, double lets silent ones hold their
connections."""

_STATUS: Final[Mapping[str, int]] = {
    "BadRequest": 400,
    "UnknownOperator": 404,
    "Failed": 500,
    "TooLarge": 500,
    "NoRun": 503,
    "NotBuilt": 503,
    "Busy": 503,
    "Timeout": 503,
}
_CONFLICT: Final = 409
"""The HTTP status of an error without one of its own: the state of the run does not allow the request."""

_RECENT: Final = 3.0
"""The seconds for which somebody who asked for the progress counts as a viewer."""


class Routes:
    """The routes.

    Args:
        guard: decides who may use the page.
        control: whether acts are served.
        metrics_token: whether the metrics need the token.

    Attributes:
        watch: the watch over the run that is shown; None before the first.
    """

    def __init__(self, guard: Guard, *, control: bool, metrics_token: bool) -> None:
        self.watch: Watch | None = None
        self._guard = guard
        self._control = control
        self._metrics_token = metrics_token
        self._waiting = 0
        self._progress = Numbered()
        self._seen_at = float("-inf")
        self._end_seen = False

    @property
    def has_unaware_viewer(self) -> bool:
        """Whether somebody looked at the progress just now, and has not seen the end of the run."""
        return not self._end_seen and time.monotonic() - self._seen_at < _RECENT

    def application(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=_BODY_BYTES, middlewares=[self._guard.checks, self._known])
        app.on_response_prepare.append(_add_headers)
        app.router.add_get("/", self._index)
        app.router.add_get("/static/{name:.+}", self._file)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_post("/api/login", self._login)
        app.router.add_get("/api/page", self._page)
        for word in sorted(QUESTIONS):
            app.router.add_get(f"/api/{word}", self._ask)
        for word in sorted(ACTS):
            app.router.add_post(f"/api/{word}", self._act)
        return app

    @web.middleware
    async def _known(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a request for documents without the token."""
        path = request.path
        needs = (path.startswith("/api/") and path != "/api/login") or (path == "/metrics" and self._metrics_token)
        if needs and not self._guard.knows(request):
            return refused(401, "the token is wrong or missing", {"WWW-Authenticate": "Bearer"})
        return await handler(request)

    async def _index(self, _request: web.Request) -> web.Response:
        return _file_answer("index.html")

    async def _file(self, request: web.Request) -> web.Response:
        return _file_answer(request.match_info["name"])

    async def _login(self, request: web.Request) -> web.Response:
        try:
            content = await _content(request)
        except BadRequest as error:
            return _answer(refusal("BadRequest", str(error)))
        token = content.get("token")
        if not isinstance(token, str) or not self._guard.accepts(token):
            return refused(401, "the token is wrong")
        response = web.Response(status=204)
        is_secure = request.headers.get("Origin", "").startswith("https:")
        self._guard.set_cookie(response, secure=is_secure)
        return response

    async def _metrics(self, request: web.Request) -> web.Response:
        reading = None if self.watch is None else self.watch.reading()
        body, kind = exposition(reading, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": kind})

    async def _healthz(self, _request: web.Request) -> web.Response:
        watch = self.watch
        return _health(watch is None or is_alive(watch.progress(), watch.meters))

    async def _readyz(self, _request: web.Request) -> web.Response:
        watch = self.watch
        return _health(watch is not None and is_ready(watch.progress(), watch.meters))

    async def _page(self, _request: web.Request) -> web.Response:
        facts = None if self.watch is None else self.watch.facts
        content = {
            "control": self._control,
            "samples": self.watch is not None and self.watch.answers.show_records,
            "version": __version__,
            "run": facts and facts.run,
            "job": facts and facts.job,
            "runtime": facts and facts.runtime,
        }
        return _answer(document("page", content))

    async def _ask(self, request: web.Request) -> web.Response:
        word = request.path.removeprefix("/api/")
        given = dict(request.query)
        after = given.pop("after", None) if word == "progress" else None
        try:
            ask = asked_in_texts(word, given)
            known = None if after is None else _number(after)
        except BadRequest as error:
            return _answer(refusal("BadRequest", str(error)))
        if word == "progress":
            return self._show_progress(known)
        return _answer(await self._answered(ask))

    def _show_progress(self, known: int | None) -> web.Response:
        if self.watch is None:
            return _answer(_NO_RUN)
        has_ended = self.watch.is_over and self.watch.progress().status in ("ended", "failed")
        number, data = self._progress.latest(self.watch)
        self._seen_at, self._end_seen = time.monotonic(), has_ended
        if number == known:
            return web.Response(status=304)
        return web.Response(body=data, content_type="application/json")

    async def _act(self, request: web.Request) -> web.Response:
        if not self._control:
            message = "this page may not steer the run; [serve] control = true allows it"
            return _answer(refusal("NotAllowed", message), 403)
        try:
            ask = asked(request.path.removeprefix("/api/"), await _content(request))
        except BadRequest as error:
            return _answer(refusal("BadRequest", str(error)))
        return _answer(await self._answered(ask))

    async def _answered(self, ask: Ask) -> Document:
        """Return the answer to a request. Each request that waits for the run gets a thread of its own."""
        watch = self.watch
        if watch is None:
            return _NO_RUN
        if ask.do not in WAITING:
            return _safely(watch, ask)
        if self._waiting >= MOST_WAITING:
            return refusal("Busy", f"{MOST_WAITING} requests wait for the run; try again later")
        self._waiting += 1
        try:
            return await _in_thread(watch, ask)
        except RuntimeError as error:  # no thread can be started
            return refusal("Busy", f"{ask.do} can't be served now: {error}")
        finally:
            self._waiting -= 1


_NO_RUN: Final = refusal("NoRun", "no run has begun yet")


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers.popall("Server", None)


def _health(is_well: bool) -> web.Response:
    return web.Response(text="ok\n") if is_well else web.Response(status=503, text="no\n")


def _file_answer(name: str) -> web.Response:
    file = page_files().get(name)
    if file is None:
        return refused(404, "there is no such file")
    return web.Response(body=file.content, content_type=file.kind, charset="utf-8")


def _answer(content: Document, status: int | None = None) -> web.Response:
    content, data = as_answer(content)
    if status is None and content["kind"] == "error":
        status = _STATUS.get(content["error"]["kind"], _CONFLICT)
    if status is None and content["kind"] == "accepted":
        status = 202
    return web.Response(body=data, status=status or 200, content_type="application/json")


async def _content(request: web.Request) -> dict[str, Any]:
    """Return the object in the body of a POST.

    Raises:
        BadRequest: if the body is not a JSON object.
        HTTPException: if it has another type, or arrives too late.
    """
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="a POST needs the type application/json\n")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise web.HTTPUnsupportedMediaType(text="the body of a POST may not be compressed\n")
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            content = json.loads(await request.read() or b"{}")
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body did not arrive in time\n") from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {type(error).__name__}") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise BadRequest(f"the body can't be read: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise BadRequest("the body is not an object")
    return content


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):  # noqa: PLR2004 - 64 bits
        raise BadRequest("after of progress must be the number of a progress")
    return int(text)


async def _in_thread(watch: Watch, ask: Ask) -> Document:
    """Return the answer from a new thread. The process does not wait for this thread when it ends."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Document] = loop.create_future()

    def finish(content: Document) -> None:
        if not answer.done():
            answer.set_result(content)

    def work() -> None:
        content = _safely(watch, ask)
        with suppress(RuntimeError):  # the server has stopped, and its loop is closed
            loop.call_soon_threadsafe(finish, content)

    threading.Thread(target=work, name="malflow-page-wait", daemon=True).start()
    return await answer


def _safely(watch: Watch, ask: Ask) -> Document:
    try:
        return watch.answers.answer(ask)
    except Exception as error:  # noqa: BLE001 - the page answers the next ones
        _log.warning("a request to the page failed: %s", ask.do, exc_info=True)
        return refusal("Failed", f"{ask.do} failed: {type(error).__name__}")
