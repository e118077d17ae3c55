"""What is asked of a run from outside, each with a future that is answered whatever ends the run."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from malflow.errors import RunFailed

__all__ = ["Request", "abandon", "fail", "follow"]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of a run: a number of workers, or, where that is None, a snapshot."""

    parallelism: int | None
    answer: Future[Any] = field(default_factory=Future)


def follow(requests: Iterable[Request], made: Future[int]) -> None:
    """Complete requests with the result of the snapshot being written."""
    for request in requests:
        made.add_done_callback(lambda done, request=request: _pass_on(done, request))  # type: ignore[misc] # mypy knows no defaults


def fail(requests: Iterable[Request], error: BaseException) -> None:
    """Raise an error where requests are waited for; those that were answered or cancelled stay so."""
    for request in requests:
        with suppress(InvalidStateError):
            request.answer.set_exception(_told(error))


def abandon(requests: Iterable[Request], error: BaseException | None = None) -> None:
    """Cancel requests; one that is being served and can't be cancelled fails.

    Args:
        requests: what nobody will serve any more.
        error: what ended the run, if anything did.
    """
    for request in requests:
        if not request.answer.cancel():
            fail([request], error or RunFailed("the run ended before this was done"))


def _pass_on(done: Future[int], request: Request) -> None:
    error = done.exception()
    if error is not None:
        fail([request], error)
        return
    with suppress(InvalidStateError):
        request.answer.set_result(done.result())


def _told(error: BaseException) -> Exception:
    """Return what another thread can be told: what ends a process or a thread must not end theirs."""
    if isinstance(error, Exception):
        return error
    told = RunFailed(f"the run was ended by {type(error).__name__} before this was done")
    told.__cause__ = error
    return told
