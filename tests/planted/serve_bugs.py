"""The planted bugs of the page's server and the metrics: access, and correct answers."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["SERVE_BUGS"]

_GUARD = "serve/access.py"
_ROUTES = "serve/routes.py"
_SECURITY = "tests/serve/test_security.py"
_METRICS = "tests/monitor/test_metrics.py"

SERVE_BUGS = [
    Bug(
        "every host name is accepted",
        "clients that reach the port know its address",
        _GUARD,
        "return name in self._hosts or (is_ip(name) and (self._is_open or is_loopback(name)))",
        "return True",
        (f"{_SECURITY}::test_foreign_hosts_are_misdirected",),
    ),
    Bug(
        "reads need no token",
        "only acts are dangerous",
        _ROUTES,
        "if needs and not self._guard.knows(request):",
        'if needs and request.method == "POST" and not self._guard.knows(request):',
        (f"{_SECURITY}::test_reads_need_the_token",),
    ),
    Bug(
        "a code can be used again within its minute",
        "the browser may load the file twice",
        _GUARD,
        "                del self._codes[code]\n",
        "",
        (f"{_SECURITY}::test_a_code_is_good_for_one_use",),
    ),
    Bug(
        "a post with a cookie needs no origin",
        "the cookie is SameSite",
        _GUARD,
        'if request.method == "POST" and origin is None and not self._has_bearer(request):',
        'if request.method == "POST" and origin is None and not self.knows(request):',
        (f"{_SECURITY}::test_a_post_with_a_cookie_needs_an_origin",),
    ),
    Bug(
        "a forked child holds the port",
        "non-inheritable sockets are closed in a forked child",
        "connectors/web_server/server.py",
        "                    os.dup2(nothing, it, inheritable=False)\n",
        "                    pass\n",
        ("tests/serve/test_command.py::test_a_child_that_outlives_the_run_holds_neither_port_nor_viewers",),
    ),
    Bug(
        "a refused connection is closed before aiohttp serves it",
        "aiohttp begins to serve a connection only later",
        "connectors/web_server/connection_limits.py",
        "        if self._transport is not None:\n            self._transport.abort()\n",
        "        transport = self._transport\n        self.connection_lost(None)\n        if transport is not None:\n"
        "            transport.abort()\n",
        ("tests/serve/test_limits.py::test_a_burst_of_connections_writes_nothing_into_the_log",),
    ),
    Bug(
        "the buckets of a histogram are not cumulative",
        "a bucket counts the values between two bounds",
        "monitor/prometheus.py",
        "accumulate(value.counts)",
        "value.counts",
        (f"{_METRICS}::test_a_run_is_scraped",),
    ),
    Bug(
        "a run is ready, no matter how old its snapshot is",
        "a run that processes records is healthy",
        "monitor/meters.py",
        "return unsaved is None or interval is None or time.monotonic() - unsaved < _INTERVALS * interval",
        "return True",
        (f"{_METRICS}::test_records_that_no_snapshot_contains_are_no_readiness",),
    ),
]
