"""The operator that calls a function for several records at a time, on the event loop of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from inspect import isawaitable
from itertools import chain
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn

from malflow.failures import BreakerOpen, Fate
from malflow.operators.calls.attempts import Bucket, Call, Circuit, GivenUp, guarded, paced, repeated, timed
from malflow.operators.calls.call_options import CALL_COUNTS, CallOptions
from malflow.operators.calls.event_loop import run_on_loop
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.failures.guard import UNASKED, Guard, is_fatal
from malflow.operators.failures.surviving import record_of, without
from malflow.operators.originals import original_of, spare_of
from malflow.records.batch import Batch
from malflow.words import plural, short_repr

if TYPE_CHECKING:
    from malflow.operators.calls.calling_out import CallingOut

__all__ = [
    "MapAsync",
    "Outside",
]


class MapAsync(Operator):
    """Replace each value with the result of a call; several calls are under way at a time.

    All calls for the batches of a tick have ended when they are emitted, in their order. Nothing is thus under way
    between ticks. With checks on, records arrive one by one, and so there is one call at a time.
    With a guard, other calls continue after one fails, and records with failed calls are dropped once all have ended.

    Args:
        context: the operator's context.
        how: creates the operators of the process, and holds the objects that they share.
    """

    is_repeatable = False
    replays_together = True

    def __init__(self, context: OperatorContext, how: CallingOut) -> None:
        super().__init__(context, how.options.function)
        self._how = how
        self._outside: Outside | None = None
        self._batch = how.options.batch
        self._counts = dict.fromkeys(CALL_COUNTS.counters, 0)

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Call the function for all batches together. The calls of one then need not wait for the calls of another."""
        return super().run(edges) if self.context.debug else self.mapped(edges[0])

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Call the function for one batch."""
        return self.mapped((batch,))[0]

    def process_again(self, batch: Batch) -> Sequence[Batch]:
        """Call the function with one value at a time, even if it takes lists. A bad value then affects no other."""
        self._batch = None if self._batch is None else 1
        try:
            return self.process(batch)
        finally:
            self._batch = self._how.options.batch

    def mapped(self, batches: Sequence[Batch]) -> list[Sequence[Batch]]:
        """Return the output for each batch.

        Args:
            batches: the batches; their calls are made together.
        """
        guard = self.guard
        if guard is not None and guard.parks:
            batches = [_unparked(batch, guard) for batch in batches]
        values = list(chain.from_iterable(batch.values for batch in batches))
        if not values:
            return [(batch,) for batch in batches]
        spares = None
        if guard is not None and guard.keeps_originals:
            spares = [[*map(spare_of, batch.values)] for batch in batches]
        answers, failures = self._answers(values, batches)
        start = 0
        mapped: list[Sequence[Batch]] = []
        for nth, batch in enumerate(batches):
            end = start + len(batch)
            of_batch = batch.with_values(answers[start:end])
            if guard is not None and (failures or guard.parks):
                failed = {at - start: failures[at] for at in range(start, end) if at in failures}
                of_batch = self._settled(of_batch, batch, failed, guard, None if spares is None else spares[nth])
            mapped.append((of_batch,))
            start = end
        return mapped

    def _settled(
        self, answers: Batch, batch: Batch, failures: Mapping[int, GivenUp], guard: Guard, spares: list[Any] | None
    ) -> Batch:
        """Pass each failed record to the guard, in order, and return the answers of the others.

        After a failure parks a key, later records of the key follow it even if their calls succeeded.

        Args:
            answers: the answers; None for a failed call.
            batch: the batch.
            failures: the failures, by position.
            guard: the guard.
            spares: spares of the values as they came, if the guard needs them.
        """
        left_out: list[int] = []
        for at in range(len(batch)) if guard.parks else failures:
            record = record_of(batch, at)
            if guard.follows(record):
                left_out.append(at)
                continue
            tried = failures.get(at)
            if tried is None:
                continue
            left_out.append(at)
            fate = self._held_back(guard) if isinstance(tried.error, BreakerOpen) else None
            if spares is not None:
                record = guard.as_it_came(record, spares[at])
            guard.take(tried.error, record, at=at, attempts=tried.attempts, fate=fate)
        return without(left_out, answers)

    def _held_back(self, guard: Guard) -> Fate | None:
        """Return the fate of a record with a call that an open breaker holds back; None to apply the policy."""
        breaker = self._how.options.breaker
        return "dead_letter" if breaker and breaker.then == "dead_letter" and guard.may_keep else None

    def _answers(self, values: list[Any], batches: Sequence[Batch]) -> tuple[list[Any], Mapping[int, GivenUp]]:
        if self._outside is None:
            try:
                self._outside = self._how.join(self.context)
            except Exception as error:
                raise self.error(error, about="open()") from error
        size = self._batch
        arguments = values if size is None else [values[at : at + size] for at in range(0, len(values), size)]
        calls = _Calls(self._outside.call(self._counts), arguments, survives=self.guard is not None)
        self.calls = max(self.calls, min(self._how.options.capacity, len(arguments)))
        run_on_loop(calls.end(self._how.options.capacity))
        self._counts["calls"] += calls.begun
        failure = calls.failure
        if isinstance(failure, (Exception, asyncio.CancelledError)):
            told = failure if isinstance(failure, Exception) else UNASKED
            raise self._failed(told, calls.failed * (size or 1), batches) from failure
        if failure is not None:
            raise failure
        return (calls.answers, calls.failures) if size is None else _by_value(calls, arguments, size)

    def _failed(self, error: Exception | str, at: int, batches: Sequence[Batch]) -> Exception:
        """Return the error for a record, by its position among all batches."""
        for batch in batches:
            if at < len(batch):
                return self.fail_at(error, batch, at, self.callback)
            at -= len(batch)
        raise AssertionError("there is no such record")

    def holdup(self) -> str | None:
        """Return why calls wait, if the breaker is open; otherwise None."""
        outside = self._outside
        return None if outside is None else outside.holdup()

    def take_counts(self) -> Mapping[str, int]:
        """Return the counters of the calls and the guard; only the calls have retries, so theirs are counted."""
        counts = self._counts.copy()
        for name in counts:
            self._counts[name] = 0
        return {**super().take_counts(), **counts}

    def park(self) -> None:
        """Keep the client open."""

    def close(self) -> None:
        """Release the client; the last worker of a process closes it."""
        if self._outside is None:
            return
        self._outside = None
        try:
            self._how.leave()
        except Exception as error:
            raise self.error(error, about="close()") from error


class Outside:
    """The resources that the workers of a process share for the calls of one operator.

    Args:
        options: how the function is called.
        context: the context of one of the operators.

    Attributes:
        workers: the number of workers that use it.
    """

    def __init__(self, options: CallOptions, context: OperatorContext) -> None:
        self._options, self._all = options, len(context.workers)
        self._bucket = None if options.rate is None else Bucket(options.rate)
        self._circuit = None if options.breaker is None else Circuit(options.breaker, context.operator_name)
        self._pool: ThreadPoolExecutor | None = None
        self._attempt: Call = options.function
        self.workers = 0

    def open(self) -> None:
        """Start the threads, and open the client."""
        options = self._options
        self._do("open")
        if options.threads is not None:
            self._pool = ThreadPoolExecutor(options.threads, thread_name_prefix="malflow call")
            self._attempt = _in_threads(options.function, self._pool)

    def call(self, counts: dict[str, int]) -> Call:
        """Return the function that makes a call with all its attempts.

        Args:
            counts: the operator's counters.
        """
        options, call = self._options, self._attempt
        if options.retry is not None:
            call = _unwrapped(call)
        if options.timeout is not None:
            call = timed(call, options.timeout.total_seconds(), counts)
        if self._bucket is not None:
            self._bucket.share = self.workers / self._all
            call = paced(call, self._bucket)
        if self._circuit is not None and options.retry is not None:
            call = guarded(call, self._circuit, options.retry.on, counts)
        if options.retry is not None:
            call = _wrapped(repeated(call, options.retry, counts))
        return call if options.batch is None else _listed(call)

    def holdup(self) -> str | None:
        """Return why calls wait, or None; may be called from any thread."""
        return None if self._circuit is None else self._circuit.reason

    def close(self) -> None:
        """Close the client, and end the threads."""
        try:
            self._do("close")
        finally:
            if self._pool is not None:
                self._pool.shutdown()

    def _do(self, name: str) -> None:
        method = getattr(self._options.function, name, None)
        if method is not None:
            run_on_loop(_awaited(method))


class _Calls:
    """The calls for some arguments. The first failure, by position, counts; no call after it begins or continues.

    As many coroutines as there may be calls at a time share one iterator.

    Attributes:
        answers: the result for each argument.
        failures: the failures after which other calls continue, by position.
        begun: the number of calls.
        failed: the position of the failure that ends the other calls; the number of arguments if there is none.
        failure: that failure, or None.
    """

    def __init__(self, call: Call, arguments: Sequence[Any], *, survives: bool) -> None:
        self._call = call
        self._survives = survives
        self._rest = iter(enumerate(arguments))
        self._at: dict[Any, int] = {}
        self.answers: list[Any] = [None] * len(arguments)
        self.failures: dict[int, GivenUp] = {}
        self.begun = 0
        self.failed = len(arguments)
        self.failure: BaseException | None = None

    async def end(self, capacity: int) -> None:
        """Begin all calls, and return when all have ended, also if the waiting is cancelled."""
        tasks = [asyncio.create_task(self._take()) for _ in range(min(capacity, len(self.answers)))]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            self.failed = -1
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise

    async def _take(self) -> None:
        """Make one call after the other."""
        call, answers, at_of, me = self._call, self.answers, self._at, asyncio.current_task()
        for at, argument in self._rest:
            if at > self.failed:
                return
            at_of[me] = at
            self.begun += 1
            try:
                answer = await call(argument)
                if type(answer) is CoroutineType:
                    _refuse(answer)
                answers[at] = answer
            except BaseException as error:  # noqa: BLE001 - the operator decides about it, in its own thread
                self._note(at, error if isinstance(error, GivenUp) else GivenUp(error))
            finally:
                at_of.pop(me, None)

    def _note(self, at: int, tried: GivenUp) -> None:
        error = tried.error
        if at >= self.failed:
            return
        if self._survives and isinstance(error, (Exception, asyncio.CancelledError)) and not is_fatal(error):
            self.failures[at] = tried
            return
        self.failed, self.failure = at, error
        for task in [task for task, other in self._at.items() if other > at]:
            del self._at[task]  # a second cancellation would disturb the function while it ends
            task.cancel()


def _unparked(batch: Batch, guard: Guard) -> Batch:
    """Return the records of a batch whose keys are not parked; the guard keeps the others."""
    return without([at for at in range(len(batch)) if guard.follows(record_of(batch, at))], batch)


def _by_value(calls: _Calls, arguments: Sequence[list[Any]], size: int) -> tuple[list[Any], Mapping[int, GivenUp]]:
    """Return the answer or failure for each value of calls with lists; if a call fails, all its values fail."""
    failures = calls.failures
    answers = [[None] * len(it) if at in failures else calls.answers[at] for at, it in enumerate(arguments)]
    by_value = {
        at * size + nth: failures[at] for at, it in enumerate(arguments) if at in failures for nth in range(len(it))
    }
    return list(chain.from_iterable(answers)), by_value


def _refuse(answer: Coroutine[Any, Any, Any]) -> NoReturn:
    answer.close()
    raise TypeError("it returned a coroutine, which nobody awaits; write 'await' before the call that makes it")


class _Argument:
    """An argument of several attempts, each of which receives it as it came."""

    __slots__ = ("_is_fresh", "_spare", "_value")

    def __init__(self, value: Any) -> None:
        self._value, self._spare, self._is_fresh = value, spare_of(value), True

    def take(self) -> Any:
        """Return the argument for the next attempt."""
        if self._is_fresh or self._spare is self._value:
            self._is_fresh = False
            return self._value
        return original_of(self._spare)


def _wrapped(call: Call) -> Call:
    """Return a call that wraps its argument, to make copies of it for later attempts."""

    def wrapping(argument: Any) -> Any:
        return call(_Argument(argument))

    return wrapping


def _unwrapped(call: Call) -> Call:
    """Return a call of one attempt. It takes a wrapped argument."""

    def unwrapping(argument: Any) -> Any:
        return call(argument.take())

    return unwrapping


def _in_threads(function: Callable[[Any], Any], pool: ThreadPoolExecutor) -> Call:
    """Return a call of a plain function in a thread. A thread can't be stopped, so a cancelled call waits for it."""

    def outcome(argument: Any) -> tuple[Any, BaseException | None]:
        try:
            return function(argument), None
        except BaseException as error:  # noqa: BLE001 - a future can't hold every exception
            return None, error

    async def call(argument: Any) -> Any:
        begun = pool.submit(copy_context().run, outcome, argument)
        waiting = asyncio.wrap_future(begun)
        try:
            answer, error = await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if not begun.cancel():
                await asyncio.wait((waiting,))
            raise
        if error is not None:
            raise error
        return answer

    return call


def _listed(call: Call) -> Call:
    """Return a call with a list that checks that it returns a result for each value."""

    async def checked(values: list[Any]) -> Any:
        answer = await call(values)
        if not isinstance(answer, (list, tuple)):
            raise TypeError(f"it must return a list of a result for each value of its list; got {short_repr(answer)}")
        if len(answer) != len(values):
            raise TypeError(f"it must return a result for each of {plural(len(values), 'value')}; got {len(answer)}")
        return answer

    return checked


async def _awaited(method: Callable[[], Any]) -> None:
    answer = method()
    if isawaitable(answer):
        await answer
