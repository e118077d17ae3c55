"""Seeing and steering a run from outside: a listener, its documents, and the files and socket by which others find it.

`Monitor` is the listener. Nothing in this room touches the engine: it reads the progress of a run from threads of its
own, and asks by the futures of the run's handle, so that it can neither end nor slow a run.
"""

from malflow.monitor.logs import JsonFormatter, RepeatFilter, TextFormatter
from malflow.monitor.monitor import Monitor

__all__ = ["JsonFormatter", "Monitor", "RepeatFilter", "TextFormatter"]
