"""The monitor that the environment asks for, or forbids: ``MALFLOW_CONTROL``, 1 or 0."""

from __future__ import annotations

import os
from collections.abc import Sequence

from malflow.errors import GraphError
from malflow.events import Listener
from malflow.monitor.monitor import Monitor
from malflow.monitor.watch import Exports, Front
from malflow.words import short_repr

__all__ = ["monitored", "monitored_unless_forbidden"]


def monitored(own: Sequence[Listener]) -> Sequence[Listener]:
    """Return the listeners of a run, with a monitor if the environment asks for one and they have none.

    Raises:
        GraphError: if ``MALFLOW_CONTROL`` is neither 1 nor 0.
    """
    return _with_monitor(own) if _wish() == "1" else own


def monitored_unless_forbidden(
    own: Sequence[Listener], page: Front | None = None, telemetry: Exports | None = None
) -> Sequence[Listener]:
    """Return the listeners of a run under a command, with a monitor unless they have one or the environment forbids it.

    Args:
        own: the run's own listeners.
        page: a page that shows the run, or None.
        telemetry: sends its metrics elsewhere, or None. With a page or telemetry, there is always a monitor.

    Raises:
        GraphError: if ``MALFLOW_CONTROL`` is neither 1 nor 0.
    """
    if page is None and telemetry is None:
        return own if _wish() == "0" else _with_monitor(own)
    watched = _with_monitor(own)
    watching = next(it for it in watched if isinstance(it, Monitor))
    watching.page = watching.page or page
    watching.telemetry = watching.telemetry or telemetry
    return watched


def _with_monitor(own: Sequence[Listener]) -> Sequence[Listener]:
    return own if any(isinstance(it, Monitor) for it in own) else (*own, Monitor())


def _wish() -> str:
    wish = os.environ.get("MALFLOW_CONTROL", "")
    if wish not in ("", "0", "1"):
        raise GraphError(f"the environment variable MALFLOW_CONTROL must be 1 or 0; got {short_repr(wish)}")
    return wish
