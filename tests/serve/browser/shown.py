"""Runs that a page shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from malflow import SingleThreadRuntime
from malflow.monitor import Monitor
from malflow.serve import Page
from tests.serve.browser.viewer import close_all

__all__ = ["Shown", "shown"]


class Shown(NamedTuple):
    """A run with its page.

    Attributes:
        handle: the handle of the run.
        url: the address of the page, with the token.
    """

    handle: Any
    url: str


@contextmanager
def shown(
    build: Callable[[Any], object],
    *options: Any,
    control: bool = True,
    samples: bool = False,
    runtime: Callable[..., Any] = SingleThreadRuntime,
    **named: Any,
) -> Iterator[Shown]:
    """Run a dataflow and show it on a page within the context.

    Args:
        build: builds the dataflow.
        options: the persistence, and other arguments of the runtime.
        control: whether the page may steer it.
        samples: whether the page may show records.
        runtime: the runtime.
        named: other options of the runtime.
    """
    page = Page("127.0.0.1:0", control=control)
    page.open()
    handle = runtime(build, *options, listeners=[Monitor(page, samples=samples)], **named).start()
    try:
        yield Shown(handle, page.url or "")
    finally:
        close_all()
        handle.stop()
        try:
            handle.await_termination(120)
        finally:
            page.close()
