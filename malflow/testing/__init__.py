"""Test helpers for dataflows: scripted sources, a file system that injects faults, and suites of laws.

Each helper is imported on first use: the file system needs fsspec, the checks need hypothesis (``pip install
'malflow[testing]'``).

>>> from malflow import SingleThreadRuntime
>>> from malflow.sinks import VecSink
>>> from malflow.testing import CRASH, Crash, ScriptedSource
>>> source, seen = ScriptedSource([1, 2, CRASH, 3]), VecSink()
>>> runtime = SingleThreadRuntime(lambda provider: provider.new_stream().source("s", source).sink("seen", seen))
>>> try:
...     runtime.execute()
... except Crash as crash:
...     print(crash, "after", seen.values)
part NoKey crashed at item 2 after [1, 2]
"""

from typing import TYPE_CHECKING

from malflow.names import load_on_use

if TYPE_CHECKING:
    from malflow.testing.exactly_once import assert_exactly_once
    from malflow.testing.faults import Call, Crash, Fault, FaultyFileSystem
    from malflow.testing.scripted import CRASH, END, PAUSE, ScriptedSource, Timed
    from malflow.testing.sink_laws import assert_sink
    from malflow.testing.source_laws import assert_source
    from malflow.testing.sql import run_sql, sql_dataflow
    from malflow.testing.store_laws import assert_store
    from malflow.testing.value_laws import SinkValues, SourceValues
    from malflow.testing.value_strategies import python_values, same_value
else:
    load_on_use(
        __name__,
        {
            "CRASH": ".scripted",
            "Call": ".faults",
            "Crash": ".faults",
            "END": ".scripted",
            "Fault": ".faults",
            "FaultyFileSystem": ".faults",
            "PAUSE": ".scripted",
            "ScriptedSource": ".scripted",
            "SinkValues": ".value_laws",
            "SourceValues": ".value_laws",
            "Timed": ".scripted",
            "assert_exactly_once": ".exactly_once",
            "assert_sink": ".sink_laws",
            "assert_source": ".source_laws",
            "assert_store": ".store_laws",
            "python_values": ".value_strategies",
            "run_sql": ".sql",
            "same_value": ".value_strategies",
            "sql_dataflow": ".sql",
        },
        "hypothesis",
        "testing",
    )

__all__ = [
    "CRASH",
    "END",
    "PAUSE",
    "Call",
    "Crash",
    "Fault",
    "FaultyFileSystem",
    "ScriptedSource",
    "SinkValues",
    "SourceValues",
    "Timed",
    "assert_exactly_once",
    "assert_sink",
    "assert_source",
    "assert_store",
    "python_values",
    "run_sql",
    "same_value",
    "sql_dataflow",
]
