"""The states of a run, for other threads to ask while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any, Generic, TypeVar, overload

from malflow.checks import check_whole_number
from malflow.engine.state_queries import (
    MOST_KEYS,
    Found,
    KeptState,
    Question,
    check_unit,
    kept_letters,
    kept_state,
    windows_node,
)
from malflow.errors import GraphError, QueryError
from malflow.failures import DeadLetter
from malflow.operators.failures.dead_letters import letter_of, oldest_first
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.requests.queries import Query, StateAnswer
from malflow.states.entry_keys import check_entry_key, check_record_key
from malflow.windows import WindowResult
from malflow.words import short_repr

__all__ = ["StateView", "WindowsView", "asked_letters"]

K = TypeVar("K")
S = TypeVar("S")
D = TypeVar("D")
R = TypeVar("R")
T = TypeVar("T")


class StateView(Generic[K, S]):
    """The states that an operator of a run has, by key; made by ``handle.state(name)``.

    All answers to one call are of the same tick: they are the states after the last one that is complete. The futures
    hold copies; their attribute `tick` has the number of that tick. They can be waited for in any thread but the run's
    own, and fail with a `QueryError` if the run ends first.

    Type checkers know keys and states if the view is annotated, as in
    ``totals: StateView[str, int] = handle.state("total")``; nothing checks it while the job runs.

    Args:
        requests: the requests to the run.
        name: the name of an operator, or of one of its hidden states.

    Raises:
        GraphError: if there is no such state, or its entries have no keys.
        QueryError: if the run has not begun.
    """

    def __init__(self, requests: RunRequests, name: str) -> None:
        self._requests = requests
        self._kept = kept_state(requests.running, name)

    @property
    def name(self) -> str:
        """The name of the state."""
        return self._kept.spec.name

    @overload
    def get(self, key: K) -> StateAnswer[S]: ...
    @overload
    def get(self, key: K, *, default: D) -> StateAnswer[S | D]: ...
    def get(self, key: Any, *, default: Any = ...) -> StateAnswer[Any]:
        """Ask for the state of a key.

        The keys of windows and joins are slots, such as ``(pane, key)``: `WindowsView` has results by key.

        Args:
            key: the key.
            default: what to answer for a key without a state, rather than to fail.

        Returns:
            A future of a copy of the state. It holds a `QueryError` if the key has no state, if it has states on
            several workers, as under ``key_local``, or if the answer is too large.

        Raises:
            GraphError: if the key has no stable hash, or the run's own thread asks.
            QueryError: if the run has ended.
        """
        self._check(key)
        return self._ask(Question(self.name, self._kept.stage, (key,)), lambda found: self._one(found, key, default))

    def get_many(self, keys: Iterable[K]) -> StateAnswer[dict[K, S]]:
        """Ask for the states of several keys, 10,000 at most.

        Args:
            keys: the keys.

        Returns:
            A future of the states by key, without keys that have none. It holds a `QueryError` as in `get`.

        Raises:
            GraphError: if there are too many keys, one has no stable hash, or the run's own thread asks.
            QueryError: if the run has ended.
        """
        wanted = tuple(islice(keys, MOST_KEYS + 1))
        if len(wanted) > MOST_KEYS:
            raise self._too_many(f"get_many() takes {MOST_KEYS:,} keys at most")
        for key in wanted:
            self._check(key)
        return self._ask(Question(self.name, self._kept.stage, tuple(dict.fromkeys(wanted))), self._by_key)

    def items(self, limit: int = 100) -> StateAnswer[list[tuple[K, S]]]:
        """Ask for the first keys with their states: worker by worker, and in the order in which they came.

        Args:
            limit: how many at most, up to 10,000.

        Returns:
            A future of pairs of key and state; fewer than `limit` if there are no more. It holds a `QueryError` if an
            answer is too large.

        Raises:
            GraphError: if the limit is not valid, or the run's own thread asks.
            QueryError: if the run has ended.
        """
        check_whole_number("items()", "limit", limit)
        if limit > MOST_KEYS:
            raise self._too_many(f"limit may be {MOST_KEYS:,} at most; got {limit:,}")
        question = Question(self.name, self._kept.stage, limit=limit)
        return self._ask(question, lambda found: [*islice(chain.from_iterable(found), limit)])

    def _check(self, key: Any) -> None:
        check_entry_key(self.name, self._kept.spec.kind, key, "windows().get()")

    def _too_many(self, reason: str) -> GraphError:
        return GraphError(
            f"operator '{self.name}': {reason}; for all of a large state, take a snapshot() and use read_state()",
            operator=self.name,
        )

    def _ask(self, question: Question, read: Callable[[Sequence[Found]], Any]) -> StateAnswer[Any]:
        return _asked(self._requests, self._kept, question, read)

    def _one(self, found: Sequence[Found], key: Any, default: Any) -> Any:
        states = self._by_key(found)
        if not states and default is ...:
            raise QueryError(
                f"operator '{self.name}' has no state for key {short_repr(key)}; pass default= if that may be",
                operator=self.name,
            )
        return next(iter(states.values()), default)

    def _by_key(self, found: Sequence[Found]) -> dict[Any, Any]:
        states: dict[Any, Any] = {}
        for key, state in chain.from_iterable(found):
            if key in states:
                raise QueryError(
                    f"operator '{self.name}' has states for key {short_repr(key)} on several workers, as it is under "
                    "key_local(); use items()",
                    operator=self.name,
                )
            states[key] = state
        return states


class WindowsView(Generic[K, R, T]):
    """The windows that an operator of a run has, open or kept; made by ``handle.windows(name)``.

    The answers are as consistent as from a `StateView`.

    Type checkers know keys, results and times if the view is annotated, as in
    ``sales: WindowsView[str, int, datetime] = handle.windows("sales")``.

    Args:
        requests: the requests to the run.
        name: the name of windows, sessions, a cogroup or a rollup.

    Raises:
        GraphError: if there is no such operator, or it has no windows.
        QueryError: if the run has not begun.
    """

    def __init__(self, requests: RunRequests, name: str) -> None:
        self._requests = requests
        self._node = windows_node(requests.running, name, "state()")
        self._kept = kept_state(requests.running, name)

    @property
    def name(self) -> str:
        """The name of the operator."""
        return self._node.name

    def get(self, key: K, *, at: T | None = None, unit: str | None = None) -> StateAnswer[list[WindowResult[R, T]]]:
        """Ask for the results of the windows of a key: those that are open, or closed and kept.

        The operator's aggregators make them of its records so far. A result has ``Timing.EARLY`` if its window is
        open, and ``Timing.FINAL`` if it is closed and kept: by `keep=` of a rollup, or by `until` for late records.

        Args:
            key: the key.
            at: the event time that the windows must include; None for all windows.
            unit: the unit of a rollup, such as ``"day"``; None for all units.

        Returns:
            A future of the results in order of time, unit by unit; empty if the key has none. It holds an
            `OperatorError` if an aggregator fails, and a `GraphError` if `at` is not a time of the stream.

        Raises:
            GraphError: if the key has no stable hash, there is no such unit, or the run's own thread asks.
            QueryError: if the run has ended.
        """
        check_record_key(self.name, key)
        check_unit(self._node, unit)
        question = Question(self.name, self._kept.stage, (key,), windows=True, at=at, unit=unit)
        return _asked(self._requests, self._kept, question, lambda found: [it for some in found for _, it in some])


def asked_letters(requests: RunRequests, operator: str, limit: int) -> StateAnswer[list[DeadLetter]]:
    """Ask for the dead letters of an operator; see `malflow.RunHandle.letters`."""
    check_whole_number("letters()", "limit", limit)
    kept = kept_letters(requests.running, operator)

    def read(found: Sequence[Found]) -> list[DeadLetter]:
        return [letter_of(operator, *it) for it in oldest_first(dict(chain.from_iterable(found)))[:limit]]

    question = Question(kept.spec.name, kept.stage, limit=min(limit, MOST_KEYS), letters=True)
    return _asked(requests, kept, question, read)


def _asked(
    requests: RunRequests, kept: KeptState, question: Question, read: Callable[[Sequence[Found]], Any]
) -> StateAnswer[Any]:
    requests.own.check_may_wait("a question is answered by the run between two ticks", "ask from another thread")
    return requests.ask_state(Query(question, kept, read, answer=StateAnswer(requests.own)))
