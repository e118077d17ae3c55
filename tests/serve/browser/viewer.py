"""A browser that shows the page of a run, and notes all that goes wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from playwright.sync_api import Browser, ConsoleMessage, Locator, Request, Route, sync_playwright
from playwright.sync_api import Page as Tab

from tests.servers.chromium import OPTIONS

__all__ = ["PATIENCE", "Viewer", "close_all", "launched"]

PATIENCE = 60_000
"""The longest wait for something to appear, in milliseconds; the machine may be busy."""

_HAS_NO_ANSWER = re.compile(r"status of (409|503)")
"""Matches the report of a question that the run could not answer: it ended before, was not built yet, or was busy."""

_PACE = {
    "? HIDDEN : SECOND;": "? HIDDEN / 4 : SECOND / 4;",
    ".map((it) => it * SECOND);": ".map((it) => (it * SECOND) / 4);",
    "WHY_EVERY = 4 * SECOND;": "WHY_EVERY = SECOND;",
}
"""Changes of the page's `live.js`: it asks four times as often, and most tests wait for its next question."""

_WATCH = """
const report = (it) => console.error(`CSP: ${it.violatedDirective} ${it.blockedURI}`);
document.addEventListener("securitypolicyviolation", report);
window.shifts = [];
const note = (it) => it.hadRecentInput || window.shifts.push(it.value);
new PerformanceObserver((list) => list.getEntries().forEach(note)).observe({ type: "layout-shift", buffered: true });
"""


@contextmanager
def launched(path: str) -> Iterator[Browser]:
    """Run a browser within the context."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=[*OPTIONS])
        yield browser
        browser.close()


class Viewer:
    """A tab that shows a page.

    Args:
        browser: the browser.
        url: the address of the page, with its token.
        width: the width of the window, in pixels.
        scheme: whether the user prefers light or dark pages.
        height: the height of the window.

    Attributes:
        tab: the tab.
        faults: console errors, warnings and reports, and requests to other hosts.
        headers: the headers of requests.
    """

    def __init__(
        self,
        browser: Browser,
        url: str,
        *,
        width: int = 1280,
        scheme: Literal["light", "dark"] = "light",
        height: int = 900,
    ) -> None:
        self._own = url.partition("#")[0]
        self.faults: list[str] = []
        self.requests: list[str] = []
        self._context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self._context.route("**/static/live.js", _quicken)
        self.tab: Tab = self._context.new_page()
        self.tab.set_default_timeout(PATIENCE)
        self.tab.add_init_script(_WATCH)
        self.tab.on("console", self._note)
        self.tab.on("pageerror", lambda error: self.faults.append(str(error)))
        self.tab.on("request", self._note_request)
        _OPEN.append(self)
        self.tab.goto(url)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not _HAS_NO_ANSWER.search(message.text):
            self.faults.append(f"{message.type}: {message.text}")

    def _note_request(self, request: Request) -> None:
        self.requests.append(request.url)
        if not request.url.startswith((self._own, "data:")):
            self.faults.append(f"a request to {request.url}")

    def ready(self, phase: str = "live") -> Viewer:
        """Wait until the page shows the run."""
        self.tab.wait_for_selector(f"body[data-ready={phase}]")
        return self

    def updated(self, times: int = 1) -> None:
        """Wait until the page has been drawn that many more times."""
        least = self.updates + times
        while self.updates < least:
            self.tab.wait_for_timeout(50)

    @property
    def updates(self) -> int:
        """How often the page has been drawn."""
        return int(self.tab.evaluate("Number(document.body.dataset.updates)"))

    @property
    def text(self) -> str:
        """All visible text of the page."""
        return self.tab.inner_text("body")

    def show(self, operator: str) -> None:
        """Show an operator by a click on its box."""
        self.box(operator).click()

    def box(self, operator: str) -> Locator:
        """Return the box of an operator; its name may have two lines."""
        name = self.tab.locator("text.name", has_text=re.compile(f"^{re.escape(operator)}$"))
        return self.tab.locator("g.node", has=name)

    def click(self, name: str) -> None:
        """Click a button."""
        self.tab.get_by_role("button", name=name, exact=True).click()

    def sees(self, text: str) -> None:
        """Wait until a text is visible."""
        self.tab.get_by_text(text).locator("visible=true").first.wait_for()

    def run(self, script: str, argument: Any = None) -> Any:
        """Return the value of an expression in the page."""
        return self.tab.evaluate(script, argument)

    def posted(self, path: str, content: Mapping[str, Any]) -> int:
        """Post to the server as the page does; return the status of the answer."""
        return int(
            self.run(
                "([path, content]) => fetch(path, {method: 'POST', headers: {'Content-Type': 'application/json'},"
                " body: JSON.stringify(content)}).then((it) => it.status)",
                [path, content],
            )
        )

    def close(self) -> None:
        """Close the tab."""
        if self in _OPEN:
            _OPEN.remove(self)
            self._context.close()


def _quicken(route: Route) -> None:
    """Answer with the script of the page, which asks more often."""
    answer = route.fetch()
    text = answer.text()
    for written, quicker in _PACE.items():
        assert written in text, written
        text = text.replace(written, quicker)
    route.fulfill(response=answer, body=text)


_OPEN: list[Viewer] = []


def close_all() -> None:
    """Close all tabs before their pages are closed, so that late requests count as no fault."""
    for viewer in [*_OPEN]:
        viewer.close()
