"""A host and a runtime for tests: each worker lives in a thread of its own, and all that leaves it is pickled.

It owns nothing but threads and queues: that it passes the conformance suite shows that a runtime is a host, and that
everything else is the coordinator's. It tells neither times nor open results between ticks, as Spark does not.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pyspark import cloudpickle

from malflow.engine.discovery import Change, refuse_unfinished
from malflow.engine.parts import Parts
from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.engine.sinks import RunSinks
from malflow.engine.states import states_of
from malflow.engine.worker import Worker
from malflow.engine.workers import Workers
from malflow.errors import release_all
from malflow.event_time.tick import Tick
from malflow.runtime.host import SinkPositions
from malflow.runtime.local_run import LocalRuntime
from malflow.runtime.options import RunOptions
from malflow.runtime.spark.driver_sinks import check_sinks, collected, driver_sinks, with_sink_proxies
from malflow.snapshot.persistence import RestoredState, Session
from malflow.states.keyed import Delta, StateDelta
from malflow.streams.stream import StreamProvider

__all__ = ["ThreadsHost", "ThreadsRuntime"]


