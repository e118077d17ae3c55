"""Planted bugs: handles for listeners, the hook of commands, requests, and counts of records."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["STEERING_BUGS"]

_LISTENERS = "tests/conformance/test_handles_of_listeners.py"
_HOOKS = "tests/runtime/test_hooks.py"
_COUNTS = "tests/conformance/test_counts.py::test_records_taken_and_given_by_each_operator"

STEERING_BUGS = (
    Bug(
        "a run that nobody can wait for forgets its error",
        "a handle without a thread",
        "runtime/attempts.py",
        "if self._requests.listeners.has_handle:",
        "if not self._requests.listeners.has_handle:",
        (f"{_LISTENERS}::test_handle_of_a_run_that_fails",),
    ),
    Bug(
        "a runtime that runs in place of another one has requests of its own",
        "a script keeps its own runtime",
        "runtime/base.py",
        "            runtime._slot = self._slot\n",
        "            pass\n",
        (f"{_HOOKS}::test_methods_of_a_runtime_in_whose_place_another_one_runs",),
    ),
    Bug(
        "a hook stays after its command",
        "one process runs many tests",
        "runtime/hooks.py",
        "        _installed.remove(hook)\n",
        "        pass\n",
        (f"{_HOOKS}::test_command_that_only_looks",),
    ),
    Bug(
        "records that leave by the second output count as those of the first",
        "one key for two outputs",
        "engine/plan.py",
        'f"out/{output}" if output else "out"',
        '"out"',
        (_COUNTS,),
    ),
    Bug(
        "records that left count again in the next tick",
        "counters are summed",
        "engine/stage_operators.py",
        "                given[port] = 0\n",
        "                pass\n",
        (_COUNTS,),
    ),
    Bug(
        "requests that were taken wait behind those that came since",
        "a queue has an end",
        "runtime/requests/mailbox.py",
        "self.waiting[:0] = [",
        "self.waiting += [",
        ("tests/runtime/test_mailbox.py::test_order_of_requests_that_an_attempt_gives_back",),
    ),
)
"""Bugs in what shows and steers a run."""
