"""The planted bugs of answers to why nothing comes out."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["WHY_BUGS"]

_CAUSES = "tests/conformance/test_why.py::test_each_cause_is_named"
_SINKS = "tests/conformance/test_why.py::test_sinks_that_wait_for_snapshots"
_RULES = "tests/runtime/test_why.py"
_HEALTHY = f"{_RULES}::test_a_run_in_which_records_flow_has_no_fault"
_FLOW = "runtime/why/flow.py"
_WHY = "runtime/why/search.py"
_TIME = "runtime/why/times.py"

WHY_BUGS = [
    Bug(
        "what an operator has ever given counts as given of late",
        "a stream that stopped an hour ago flows",
        _FLOW,
        "return after if is_new else after - before",
        "return after",
        (_CAUSES,),
    ),
    Bug(
        "late records count as given on time",
        "a generator of epochs has two outputs",
        _FLOW,
        "return late if port.output else self._into(progress, port.vertex) - late",
        "return self._into(progress, port.vertex)",
        (_CAUSES,),
    ),
    Bug(
        "records that set timestamps count as those on time",
        "two operators share a name",
        "engine/stage_operators.py",
        "if count or key in counts:",
        "if count:",
        (f"{_RULES}::test_records_that_pass_a_step_of_their_name_do_not_count_as_its_own",),
    ),
    Bug(
        "a silent part is told as a silent source",
        "the stream has one epoch, so its source must be silent",
        _TIME,
        "    if last is not None and newest - last < least:\n        return None\n",
        "    return None\n",
        (_CAUSES,),
    ),
    Bug(
        "the silent input of a join is told as a silent source",
        "the cause is the source",
        _TIME,
        "        if silent and others and",
        "        if False and",
        (_CAUSES,),
    ),
    Bug(
        "a bound is told as too long where results are about to come",
        "the newest record is past the end of the window",
        _TIME,
        "if not is_over or _comes_soon(flow, vertex, row, missing):",
        "if not is_over:",
        (f"{_RULES}::test_a_bound_that_is_soon_passed_is_no_fault",),
    ),
    Bug(
        "a few failures explain that nothing comes out",
        "there are failures, so they are the cause",
        _WHY,
        "if not failed or (failed < taken and not (recent and recent >= flow.recently_taken(vertex))):",
        "if not failed:",
        (f"{_RULES}::test_failures_are_the_cause_only_if_all_records_fail",),
    ),
    Bug(
        "a sink for alarms makes each run faulty",
        "a filter that drops all is a fault",
        _WHY,
        "if it.is_fault and not (flowing and it.cause in _OFTEN_MEANT)",
        "if it.is_fault",
        (f"{_RULES}::test_a_sink_for_alarms_is_no_fault_of_a_run_with_other_sinks",),
    ),
    Bug(
        "a sink that holds its records back is told to give them",
        "it has received them",
        "runtime/coordination/sink_commits.py",
        "taken[name] - kept.get(name, 0)",
        "0",
        (_SINKS,),
    ),
    Bug(
        "a failure of snapshots is remembered when they work again",
        "the error is worth telling",
        "runtime/coordination/snapshots.py",
        "        self.failure = None\n        self._kept",
        "        self._kept",
        (f"{_RULES}::test_a_snapshot_that_works_again_clears_the_failure",),
    ),
]
