"""The monitor that the environment asks for: ``MALFLOW_CONTROL=1``."""

from __future__ import annotations

import os
from collections.abc import Sequence

from malflow.errors import GraphError, short_repr
from malflow.events import Listener
from malflow.monitor.monitor import Monitor

__all__ = ["monitored"]


def monitored(own: Sequence[Listener]) -> Sequence[Listener]:
    """Return the listeners of a run, with a monitor if the environment asks for one and there is none.

    Raises:
        GraphError: if ``MALFLOW_CONTROL`` is neither 1 nor 0.
    """
    wish = os.environ.get("MALFLOW_CONTROL", "")
    if wish not in ("", "0", "1"):
        raise GraphError(f"the environment variable MALFLOW_CONTROL must be 1 or 0; got {short_repr(wish)}")
    if wish != "1" or any(isinstance(it, Monitor) for it in own):
        return own
    return (*own, Monitor())
