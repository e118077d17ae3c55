"""The planted bugs of calls of functions that wait."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["CALLING_BUGS"]

_OPERATOR = "operators/calls/map_async.py"
_ATTEMPTS = "operators/calls/attempts.py"
_TESTS = "tests/calling_out/test_map_async.py"
_FAILED = "tests/calling_out/test_failed_calls.py"
_LIMITS = "tests/calling_out/test_limits.py"

CALLING_BUGS = [
    Bug(
        "results are in the order of the answers",
        "appended as they come",
        _OPERATOR,
        "                answers[at] = answer\n",
        "                answers[answers.index(None)] = answer\n",
        (f"{_TESTS}::test_messages_and_epochs_are_those_of_map",),
    ),
    Bug(
        "the first failure in time counts",
        "later ones are ignored",
        _OPERATOR,
        "        if at >= self.failed:\n",
        "        if self.failure is not None:\n",
        (f"{_TESTS}::test_the_first_failure_counts_and_later_calls_are_cancelled",),
    ),
    Bug(
        "a letter of a call counts one attempt",
        "a call is tried once",
        _ATTEMPTS,
        "                    raise GivenUp(error, begun + 1) from None\n",
        "                    raise error\n",
        (f"{_FAILED}::test_a_failed_call_becomes_a_letter_with_its_attempts",),
    ),
    Bug(
        "a failing list gives a letter for its first value only",
        "a call has one failure",
        _OPERATOR,
        "for nth in range(len(it))\n",
        "for nth in range(1)\n",
        (f"{_FAILED}::test_a_list_that_fails_has_failed_for_each_of_its_values",),
    ),
    Bug(
        "letters of a list are replayed as a list",
        "a replay is a batch",
        _OPERATOR,
        "        self._batch = None if self._batch is None else 1\n",
        "",
        (f"{_FAILED}::test_replayed_letters_of_lists_are_called_alone",),
    ),
    Bug(
        "letters of calls are replayed one by one",
        "other operators' letters are, too",
        _OPERATOR,
        "    replays_together = True\n",
        "",
        (f"{_FAILED}::test_replayed_letters_are_called_together_and_count_their_attempts",),
    ),
    Bug(
        "calls begin after a failure",
        "the iterator is not stopped",
        _OPERATOR,
        "            if at > self.failed:\n",
        "            if at > self.failed and False:\n",
        (f"{_TESTS}::test_no_call_begins_after_a_failure",),
    ),
    Bug(
        "a cancelled call is abandoned in its thread",
        "a cancelled future is over",
        _OPERATOR,
        "            if not begun.cancel():\n                await asyncio.wait((waiting,))\n",
        "",
        (f"{_TESTS}::test_a_client_is_closed_when_its_calls_in_threads_have_ended",),
    ),
    Bug(
        "a repeated task calls anew",
        "without output there is nothing to store",
        _OPERATOR,
        "    is_repeatable = False\n",
        "    is_repeatable = True\n",
        ("tests/lookups/test_repeated_tasks.py::test_a_repeated_task_does_not_ask_again",),
    ),
    Bug(
        "a call is cancelled again while it ends",
        "each failure cancels all later calls",
        _OPERATOR,
        "            del self._at[task]  # a second cancellation would disturb the function while it ends\n",
        "",
        (f"{_TESTS}::test_the_first_failure_counts_and_later_calls_are_cancelled",),
    ),
    Bug(
        "an interrupt leaves the calls under way",
        "the future is forgotten",
        "operators/calls/event_loop.py",
        "                future.cancel()\n",
        "",
        (f"{_TESTS}::test_a_second_interrupt_cancels_the_calls",),
    ),
    Bug(
        "each worker opens the client",
        "it is opened where it is used",
        "operators/calls/calling_out.py",
        "            if outside is None:\n                outside = Outside",
        "            if True:\n                outside = Outside",
        (f"{_TESTS}::test_a_client_is_opened_and_closed_once_for_all_workers_of_a_process",),
    ),
    Bug(
        "a child that was forked uses the loop of its parent",
        "a module has one loop",
        "operators/calls/event_loop.py",
        "    loop = _LOOPS.get(os.getpid())\n    if loop is None:\n        with",
        "    loop = next(iter(_LOOPS.values()), None)\n    if loop is None:\n        with",
        ("tests/calling_out/test_processes.py::test_a_forked_process_has_a_loop_of_its_own",),
    ),
    Bug(
        "a rate counts from when a call began, not from its turn",
        "the time of the last call is at hand",
        _ATTEMPTS,
        "        self._next = begins + each\n",
        "        self._next = now + each\n",
        (f"{_LIMITS}::test_a_rate_is_that_of_a_token_bucket",),
    ),
    Bug(
        "all calls try an open breaker",
        "its time is over for all",
        _ATTEMPTS,
        "            if left <= 0 and not self._is_trying:\n",
        "            if left <= 0:\n",
        (f"{_LIMITS}::test_calls_wait_for_the_end_of_an_outage_of_any_length",),
    ),
    Bug(
        "a trial that is cancelled keeps the breaker waiting for it",
        "only outcomes are noted",
        _ATTEMPTS,
        "                circuit.release(tried=tried)\n",
        "",
        (f"{_LIMITS}::test_a_trial_that_is_cancelled_leaves_the_next_one_to_another_call",),
        seconds=60,
    ),
    Bug(
        "slow calls make ticks of one record",
        "a tick takes a tenth of a second",
        "engine/ticks.py",
        "            self.limit = max(self._least, self._adjusted(polled, largest, seconds))\n",
        "            self.limit = self._adjusted(polled, largest, seconds)\n",
        ("tests/engine/test_poll_pacing.py::test_slow_calls_do_not_make_ticks_smaller_than_the_least",),
    ),
]
