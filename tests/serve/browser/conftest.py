"""One browser for all tests of a process, and the folder for the files of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from malflow.snapshot import FsspecBackend
from tests.monitor.conftest import place
from tests.serve.browser.viewer import Viewer, launched

__all__ = ["place"]


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """Return the browser."""
    with launched(chromium) as started:
        yield started


@pytest.fixture
def view(browser: Browser) -> Iterator[Callable[..., Viewer]]:
    """Return a function that opens a page; at the end, no page may have had a fault."""
    viewers: list[Viewer] = []

    def opened(url: str, **options: Any) -> Viewer:
        viewers.append(Viewer(browser, url, **options))
        return viewers[-1]

    yield opened
    for viewer in viewers:
        viewer.close()
    assert [fault for viewer in viewers for fault in viewer.faults] == []


@pytest.fixture
def store(tmp_path: Any) -> FsspecBackend:
    """Return a place for snapshots."""
    return FsspecBackend(str(tmp_path / "kept"), job="orders")
