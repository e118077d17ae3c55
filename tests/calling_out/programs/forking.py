"""A program that calls out, forks, and calls out in both processes."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


def total() -> int:
    sink: VecSink[Any, int, int] = VecSink()

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(3)))
        numbers.map_async("double", double).sink("out", sink)

    SingleThreadRuntime(build).execute()
    return sum(sink.values)


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads
    total()
    child = os.fork()
    if not child:
        print("child", total())
        sys.exit()
    os.waitpid(child, 0)
    print("parent", total())
