"""Wait for a condition, without assumptions about the speed of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["wait_until"]


def wait_until(condition: Callable[[], object], seconds: float = 300) -> None:
    """Wait until a condition holds; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds} seconds"
        time.sleep(0.01)
