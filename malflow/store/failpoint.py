"""Points at which a test can kill the process: ``MALFLOW_FAILPOINT=name:nth`` kills it at the nth pass."""

from __future__ import annotations

import os
import signal

__all__ = ["failpoint"]

_WANTED, _, _NTH = os.environ.get("MALFLOW_FAILPOINT", "").partition(":")
_left = {_WANTED: int(_NTH or 1)} if _WANTED else {}


def failpoint(name: str) -> None:
    """Pass a failpoint; kill the process, as a power cut would, if the environment variable asks for it."""
    if name not in _left:
        return
    _left[name] -= 1
    if _left[name] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
