"""The process that starts Spark's processes of Python: `pyspark.daemon`, which collects garbage faster here.

Spark collects all garbage after each task. That walks all objects of the modules that a process has imported, pandas
and Arrow among them, and takes ten times as long as the task of a small tick.
"""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

from pyspark import daemon

__all__: list[str] = []


class _Collector:
    """Collects garbage, and leaves modules out of later collections once they are imported."""

    def __init__(self) -> None:
        self._modules = 0

    def collect(self) -> int:
        found = gc.collect()
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            gc.freeze()
        return found


if __name__ == "__main__":
    daemon.gc = SimpleNamespace(collect=_Collector().collect)
    daemon.manager()
