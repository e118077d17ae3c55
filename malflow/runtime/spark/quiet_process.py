"""A Python process of Spark that ends quietly once Java has closed its socket."""

from __future__ import annotations

import sys
import traceback
from functools import cache
from types import ModuleType

__all__ = ["end_quietly"]


@cache
def end_quietly() -> None:
    """From now on, keep PySpark's daemon from printing a traceback in this process when Java is gone.

    When a session stops, Java closes the sockets of idle processes. They then try to write to them. On a Unix domain
    socket this fails at once.
    """
    for daemon in (sys.modules["__main__"], sys.modules.get("pyspark.daemon")):
        if getattr(daemon, "traceback", None) is traceback and hasattr(daemon, "manager"):
            vars(daemon)["traceback"] = _Muted("traceback")


class _Muted(ModuleType):
    """Stands for the module `traceback` in the daemon."""

    @staticmethod
    def print_exc() -> None:
        """Print the current exception, unless it is that of a closed socket."""
        if not isinstance(sys.exception(), ConnectionError | EOFError):
            traceback.print_exc()
