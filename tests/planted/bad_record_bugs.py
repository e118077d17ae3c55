"""The planted bugs of policies for failed records."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["BAD_RECORD_BUGS"]

_STATES = "operators/guarded_states.py"
_STATELESS = "operators/guarded.py"
_LAWS = "tests/bad_records/test_laws.py"
_POLICIES = "tests/bad_records/test_policies.py"

BAD_RECORD_BUGS = [
    Bug(
        "a failed call has changed the state",
        "the function received the state itself",
        _STATES,
        "        if type(state) in ATOMIC_TYPES or _is_frozen(state):\n            return state\n",
        "        if state is not None:\n            return state\n",
        (f"{_LAWS}::test_a_failed_call_leaves_no_trace",),
    ),
    Bug(
        "a failed call has set a timer",
        "only messages are taken back",
        _STATES,
        "                    timers.drop()\n",
        "                    timers.keep()\n",
        (f"{_LAWS}::test_a_failed_call_leaves_no_trace",),
    ),
    Bug(
        "a failed call has sent messages",
        "they were sent before the failure",
        _STATELESS,
        "                    output.cut(start)\n",
        "                    output.cut(len(output))\n",
        (f"{_LAWS}::test_a_failed_call_leaves_no_trace",),
    ),
    Bug(
        "a StopIteration of the function ends the batch",
        "it is the end of an iterator",
        "operators/guarding.py",
        "                if len(found) == len(batch):\n",
        "                if len(found) <= len(batch):\n",
        (f"{_LAWS}::test_a_failed_call_leaves_no_trace",),
    ),
    Bug(
        "a lack of memory is skipped",
        "MemoryError is an Exception",
        "operators/guarding.py",
        "isinstance(error, (MemoryError, MalflowError))",
        "isinstance(error, MalflowError)",
        (f"{_POLICIES}::test_no_policy_decides_about_memory_and_errors_of_malflow",),
    ),
]
