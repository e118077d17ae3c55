"""The attempts of a call: when they begin, how long they may take, and whether they are repeated."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from malflow.checks import checked_seconds
from malflow.failures import Breaker, BreakerOpen, Rate, Retry

__all__ = ["Bucket", "Call", "Circuit", "GivenUp", "guarded", "paced", "repeated", "timed"]

Call: TypeAlias = Callable[[Any], Awaitable[Any]]

_log = logging.getLogger("malflow.operators")

_THEN = {"wait": "wait", "fail": "fail", "dead_letter": "become dead letters"}
"""How to describe calls while a breaker is open, by its ``then``."""


class GivenUp(Exception):
    """The failure of a call, with the number of its attempts.

    Args:
        error: the exception of the last attempt.
        attempts: the number of attempts made.
    """

    def __init__(self, error: BaseException, attempts: int = 1) -> None:
        super().__init__(error, attempts)
        self.error = error
        self.attempts = attempts


class Bucket:
    """The token bucket of a process, as the time at which the next call may begin.

    Args:
        rate: the rate of all processes.

    Attributes:
        share: the share of this process.
    """

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._next = float("-inf")
        self.share = 1.0

    async def take(self) -> None:
        """Wait until a call may begin; calls begin in the order in which they ask."""
        each = 1 / (self._rate.per_second * self.share)
        now = asyncio.get_running_loop().time()
        begins = max(self._next, now - (self._rate.burst - 1) * each)
        self._next = begins + each
        if begins > now:
            await asyncio.sleep(begins - now)


class Circuit:
    """The state of a breaker in a process.

    Args:
        breaker: the breaker.
        operator: the operator's name, for the log.
    """

    def __init__(self, breaker: Breaker, operator: str) -> None:
        self._breaker, self._operator = breaker, operator
        self._seconds = checked_seconds("Breaker", "open_for", breaker.open_for)
        self._last: deque[bool] = deque(maxlen=breaker.of)
        self._until: float | None = None
        self._is_trying = False
        self._changed = asyncio.Event()
        self.waits = breaker.then == "wait"

    @property
    def reason(self) -> str | None:
        """Why calls wait, if the breaker is open; may be read from any thread."""
        if self._until is None or not self.waits:
            return None
        return f"its breaker is open, since {self._breaker.failures} of the last {self._breaker.of} calls failed"

    async def admit(self) -> bool:
        """Wait until an attempt may begin; return whether it is the one that tries an open breaker.

        Raises:
            BreakerOpen: if the breaker is open, and calls do not wait.
        """
        while self._until is not None:
            left = self._until - asyncio.get_running_loop().time()
            if left <= 0 and not self._is_trying:
                self._is_trying = True
                return True
            if not self.waits:
                raise BreakerOpen(
                    f"the breaker is open: {self._breaker.failures} of the last {self._breaker.of} attempts failed"
                )
            await self._change(None if self._is_trying else left)
        return False

    async def _change(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def note(self, *, failed: bool, tried: bool) -> bool:
        """Record the outcome of an attempt; return whether it opened the breaker."""
        if tried:
            self._is_trying = False
        elif self._until is not None:
            return False  # it began before the breaker opened
        self._last.append(failed)
        if tried and not failed:
            self._last.clear()
            self._until = None
            _log.warning("operator %r: the breaker closes; calls continue", self._operator)
        opens = failed and (tried or sum(self._last) >= self._breaker.failures)
        if opens:
            self._until = asyncio.get_running_loop().time() + self._seconds
            _log.warning(
                "operator %r: %d of the last %d calls failed; the breaker is open for %g s, and calls %s",
                self._operator,
                sum(self._last),
                len(self._last),
                self._seconds,
                _THEN[self._breaker.then],
            )
        if tried:
            self._wake()
        return opens

    def release(self, *, tried: bool) -> None:
        """Record that an attempt was cancelled."""
        if tried:
            self._is_trying = False
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def timed(call: Call, seconds: float, counts: dict[str, int]) -> Call:
    """Return a call that is cancelled after some seconds.

    Args:
        call: the call.
        seconds: the seconds.
        counts: has the counter ``timed_out``.
    """

    async def within(argument: Any) -> Any:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await call(argument)
        except TimeoutError:
            if not limit.expired():
                raise
            counts["timed_out"] += 1
            raise TimeoutError(f"no answer within {seconds:g} s") from None

    return within


def paced(call: Call, bucket: Bucket) -> Call:
    """Return a call that begins when a bucket has a token."""

    async def in_turn(argument: Any) -> Any:
        await bucket.take()
        return await call(argument)

    return in_turn


def guarded(call: Call, circuit: Circuit, kinds: tuple[type[Exception], ...], counts: dict[str, int]) -> Call:
    """Return a call that begins when a breaker admits it.

    Args:
        call: the call.
        circuit: the breaker.
        kinds: the exceptions that are failures of the system that is called.
        counts: has the counters ``retried`` and ``opened``.
    """

    async def admitted(argument: Any) -> Any:
        while True:
            tried = await circuit.admit()
            try:
                answer = await call(argument)
            except kinds:
                counts["opened"] += circuit.note(failed=True, tried=tried)
                if not (tried and circuit.waits):
                    raise
            except BaseException:
                circuit.release(tried=tried)
                raise
            else:
                circuit.note(failed=False, tried=tried)
                return answer
            counts["retried"] += 1

    return admitted


def repeated(call: Call, retry: Retry, counts: dict[str, int]) -> Call:
    """Return a call that is repeated if it fails.

    Args:
        call: the call.
        retry: how often, and after which exceptions.
        counts: has the counter ``retried``.

    Raises:
        GivenUp: if the last attempt fails, or an attempt fails with an exception that is not retried.
    """

    async def attempts(argument: Any) -> Any:
        pauses = [*retry.pauses(), None]
        for begun, pause in enumerate(pauses):
            try:
                return await call(argument)
            except BreakerOpen as error:
                raise GivenUp(error, begun) from None
            except Exception as error:  # noqa: BLE001 - raised again, or followed by another attempt
                if pause is None or not isinstance(error, retry.on):
                    raise GivenUp(error, begun + 1) from None
            counts["retried"] += 1
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    return attempts
