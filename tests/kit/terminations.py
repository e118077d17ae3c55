"""A SIGTERM to the tests ends them, also where a run in their process takes it for its own stop.

``timeout`` sends one when the time is over, to all of its process group, and so does CI. Python would end. While a test
waits in ``execute()``, the run ends instead, as it should: in peace, with a snapshot of a part of the input. The test
would then fail by its results, or not at all, without a word of the signal, and the other tests would go on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from typing import Any, Final

import pytest

__all__: list[str] = []

_TOLD = "SIGTERM has come from outside: a run in this test may have ended early, and no further test is run"
_SIGNALS: Final = os.pipe()
"""The pipe into which Python writes the number of each signal that has a handler."""


def pytest_sessionstart() -> None:
    """Note signals from now on; children that are forked do not."""
    for end in _SIGNALS:
        os.set_blocking(end, False)
    signal.set_wakeup_fd(_SIGNALS[1], warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_note_no_more)


def _note_no_more() -> None:
    signal.set_wakeup_fd(-1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Say in the report of a test that SIGTERM came during it, and end the session."""
    report = yield
    if _has_come():
        report.sections.append(("Signals", _TOLD))
        item.session.shouldstop = _TOLD
    return report


def _has_come() -> bool:
    try:
        return signal.SIGTERM in os.read(_SIGNALS[0], 1 << 16)
    except BlockingIOError:
        return False
