"""Rates, breakers, timeouts and pauses, on an event loop whose time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import Breaker, BreakerOpen, GraphError, Rate, Retry
from malflow.operators.calls.attempts import Bucket, Circuit, GivenUp, guarded, paced, repeated


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that jumps to the next deadline in place of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined] # of asyncio
        select = selector.select

        def jump(timeout: float | None) -> Any:
            self.now += timeout or 0.0
            return select(0)

        selector.select = jump

    def time(self) -> float:
        return self.now


def in_virtual_time(run: Callable[[VirtualLoop], Coroutine[Any, Any, Any]]) -> Any:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(run(loop))
    finally:
        loop.close()


@given(
    per_second=st.sampled_from([1, 4, 50, 0.5]),
    burst=st.integers(1, 5),
    share=st.sampled_from([1.0, 0.5, 0.25]),
    asked=st.lists(st.floats(0, 10), min_size=1, max_size=30).map(sorted),
)
def test_a_rate_is_that_of_a_token_bucket(per_second: float, burst: int, share: float, asked: list[float]) -> None:
    async def run(loop: VirtualLoop) -> list[float]:
        bucket, begun = Bucket(Rate(per_second, burst)), list[float]()
        bucket.share = share

        async def call(at: float) -> None:
            await asyncio.sleep(at)
            await bucket.take()
            begun.append(loop.now)

        await asyncio.gather(*map(call, asked))
        return begun

    tokens, then, expected = float(burst), 0.0, []
    rate = per_second * share
    for at in asked:  # the model: tokens that are refilled, and a queue
        now = max(at, then)
        tokens = min(burst, tokens + (now - then) * rate)
        if tokens < 1:
            now += (1 - tokens) / rate
            tokens = 1.0
        tokens, then = tokens - 1, now
        expected.append(now)
    assert in_virtual_time(run) == pytest.approx(expected, abs=1e-6)


def test_pauses_between_attempts_grow_up_to_the_longest() -> None:
    async def run(loop: VirtualLoop) -> list[float]:
        begun: list[float] = []

        async def fails(_: Any) -> None:
            begun.append(loop.now)
            raise TimeoutError

        call = repeated(fails, Retry(attempts=5, first=1, factor=3, longest=5), {"retried": 0})
        with pytest.raises(GivenUp) as failed:
            await call(None)
        assert (type(failed.value.error), failed.value.attempts) == (TimeoutError, 5)
        return begun

    assert in_virtual_time(run) == pytest.approx([0, 1, 4, 9, 14])


class Server:
    """A server that is down until some time, and the calls that it gets, with a breaker before it."""

    def __init__(self, loop: VirtualLoop, breaker: Breaker, retry: Retry, up: float, down: float = 0.0) -> None:
        self.loop, self.up, self.down = loop, up, down
        self.begun: list[float] = []
        self.counts = {"retried": 0, "opened": 0}
        admitted = guarded(self._answer, Circuit(breaker, "call"), retry.on, self.counts)
        self.call = repeated(admitted, retry, self.counts)

    async def _answer(self, value: int) -> int:
        self.begun.append(self.loop.now)
        await asyncio.sleep(0.25)
        if self.down <= self.loop.now < self.up:
            raise TimeoutError
        return value


FIVE = Breaker(failures=5, of=10, open_for=timedelta(seconds=30))


@pytest.mark.fault("O7")
def test_calls_wait_for_the_end_of_an_outage_of_any_length(caplog: pytest.LogCaptureFixture) -> None:
    async def run(loop: VirtualLoop) -> Server:
        server = Server(loop, FIVE, Retry(attempts=2, first=1), up=3600)
        assert await asyncio.gather(*map(server.call, range(8))) == [*range(8)]
        return server

    server = in_virtual_time(run)
    assert server.begun[:8] == [0] * 8
    trials = server.begun[8:-7]
    assert all(later - earlier == pytest.approx(30.25) for earlier, later in pairwise(trials))
    assert trials[0] == pytest.approx(30.25)
    assert trials[-1] < 3600 + 30.25, "one call at a time is tried"
    assert server.begun[-7:] == pytest.approx([trials[-1] + 0.25] * 7), "then all others are made"
    assert server.counts["opened"] == len(trials)
    assert "the breaker is open for 30 s, and calls wait" in caplog.text
    assert "the breaker closes" in caplog.text


def test_old_failures_do_not_open_a_breaker() -> None:
    async def run(loop: VirtualLoop) -> Server:
        server = Server(loop, FIVE, Retry(attempts=3, first=0), up=0.6)
        for value in range(4):
            server.down = loop.now
            server.up = loop.now + 0.3
            await server.call(value)
            for _ in range(9):
                await server.call(value)
        return server

    assert in_virtual_time(run).counts == {"retried": 4, "opened": 0}


def test_calls_fail_at_once_if_they_do_not_wait() -> None:
    async def run(loop: VirtualLoop) -> None:
        breaker = Breaker(failures=3, of=3, open_for=timedelta(seconds=30), then="fail")
        server = Server(loop, breaker, Retry(attempts=2, first=1, on=(Exception,)), up=100)
        found: list[Any] = await asyncio.gather(*map(server.call, range(4)), return_exceptions=True)
        assert [(type(it.error), it.attempts) for it in found] == [(BreakerOpen, 1)] * 4
        assert loop.now == pytest.approx(1.25), "nothing waits for the breaker, nor for a pause"
        await asyncio.sleep(100)
        assert await server.call(7) == 7

    in_virtual_time(run)


def test_a_trial_that_is_cancelled_leaves_the_next_one_to_another_call() -> None:
    async def run(loop: VirtualLoop) -> None:
        server = Server(loop, FIVE, Retry(attempts=2, first=0), up=20)
        calls = [asyncio.ensure_future(server.call(value)) for value in range(6)]
        await asyncio.sleep(30.3)
        assert len(server.begun) == 7, "one call is tried"
        done = [call for call in calls if call.done()]
        assert not done
        trial = calls[0]
        trial.cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(it, asyncio.CancelledError) for it in found) == 1
        assert loop.now < 31

    in_virtual_time(run)


def test_calls_of_a_rate_and_a_breaker_keep_both() -> None:
    async def run(loop: VirtualLoop) -> list[float]:
        server = Server(loop, FIVE, Retry(), up=0)
        await asyncio.gather(*map(paced(server.call, Bucket(Rate(2))), range(3)))
        return server.begun

    assert in_virtual_time(run) == pytest.approx([0, 0.5, 1.0])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Retry(0), "Retry attempts must be a whole number, at least 1; got 0"),
        (lambda: Retry(True), "Retry attempts must be a whole number, at least 1; got True"),
        (lambda: Retry(first=-1), "Retry first must be a time of zero or more, such as '10s'"),
        (lambda: Retry(factor=0.5), "Retry factor must be a number, at least 1; got 0.5"),
        (lambda: Retry(longest=float("nan")), "Retry longest must be a time of zero or more, such as '10s'"),
        (lambda: Retry(on=TimeoutError), "Retry on must be a tuple of classes of exceptions"),  # type: ignore[arg-type]
        (lambda: Retry(on=(KeyboardInterrupt,)), "Retry on must be a tuple"),  # type: ignore[arg-type]
        (lambda: Rate(0), "Rate per_second must be a number, above 0; got 0"),
        (lambda: Rate(5, 0), "Rate burst must be a whole number, at least 1; got 0"),
        (lambda: Breaker(0), "Breaker failures must be a whole number, at least 1; got 0"),
        (lambda: Breaker(20, 10), "Breaker looks back on of=10 attempts, fewer than failures=20"),
        (lambda: Breaker(open_for=0), "Breaker open_for must be a time above zero"),
        (lambda: Breaker(then="skip"), "Breaker then must be 'wait', 'fail' or 'dead_letter'; got 'skip'"),  # type: ignore[arg-type]
    ],
)
def test_invalid_limits_are_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(GraphError) as error:
        make()
    assert problem in str(error.value)
