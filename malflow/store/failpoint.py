"""Points at which a test can kill or suspend the process.

``MALFLOW_FAILPOINT=name:nth`` kills it at the nth pass, ``MALFLOW_FAILPOINT=name:nth:stop`` suspends it there.
"""

from __future__ import annotations

import os
import signal

__all__ = ["failpoint"]

_WANTED, _NTH, _DEED = (os.environ.get("MALFLOW_FAILPOINT", "") + "::").split(":")[:3]
_left = {_WANTED: int(_NTH or 1)} if _WANTED else {}


def failpoint(name: str) -> None:
    """Pass a failpoint; if the environment requests it, kill the process, as a power cut would, or suspend it."""
    if name not in _left:
        return
    _left[name] -= 1
    if _left[name] == 0:
        os.kill(os.getpid(), signal.SIGSTOP if _DEED == "stop" else signal.SIGKILL)
