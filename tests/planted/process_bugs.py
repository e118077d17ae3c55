"""The planted bugs of worker processes: records, states, answers and processes that get lost between them."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["PROCESS_BUGS"]

_FOLDER = "tests/multiprocess"
_ROUND = f"{_FOLDER}/test_handing_round.py::test_a_job_goes_between_one_thread_and_processes"
_FAILED = f"{_FOLDER}/test_failed_snapshots.py"
_RESCALING = f"{_FOLDER}/test_rescaling.py"
_DEATHS = f"{_FOLDER}/test_deaths.py"
_RESCALE = "tests/conformance/test_rescale.py"
_GOLDEN = "tests/golden/test_golden.py::test_keys_that_had_another_place_are_found_again"
_FAILURES = "tests/conformance/test_failures.py"
_DISCOVERY = "tests/conformance/test_discovery.py"
_CONFIRMATIONS = "tests/conformance/test_confirmations.py"

PROCESS_BUGS = [
    Bug(
        "a rescale takes away what a snapshot has yet to write",
        "two users of one list",
        "runtime/processes/host.py",
        "                self._written.exception()",
        "                pass",
        (_FAILED,),
    ),
    Bug(
        "all records for a process go to its first worker",
        "a process is taken for a worker",
        "runtime/processes/exchange.py",
        "                sent[channel][sender][target] = ",
        "                sent[channel][sender][self._mine[0]] = ",
        (_ROUND,),
    ),
    Bug(
        "records of the last process are dropped",
        "off by one between the peers",
        "runtime/processes/exchange.py",
        "        for parcel in arrived.values():",
        "        for parcel in [*arrived.values()][:-1]:",
        (_ROUND,),
    ),
    Bug(
        "a snapshot that fails takes its changes with it",
        "the next snapshot has only what is new",
        "runtime/processes/worker_snapshots.py",
        "[*(() if command.full else self._unwritten), changes]",
        "[changes]",
        (_FAILED,),
    ),
    Bug(
        "a failed snapshot counts as durable",
        "the end of a snapshot is taken for its success",
        "runtime/processes/worker_snapshots.py",
        "        if snapshot is not None:\n            self._unwritten",
        "        if tick:\n            self._unwritten",
        (_FAILED,),
    ),
    Bug(
        "states that a start has moved are in no snapshot",
        "the changes of loading are not handed over",
        "runtime/processes/host.py",
        "                _only(changed, mine),",
        "                {},",
        (_GOLDEN,),
    ),
    Bug(
        "a rescale repeats the records since the last snapshot",
        "states move, positions do not",
        "engine/workers.py",
        "            worker.states.note_positions()",
        "            pass",
        (_RESCALING, _RESCALE),
    ),
    Bug(
        "readers without positions start over after a rescale",
        "what has no position is taken for what has not begun",
        "engine/workers.py",
        "operator_name] = source.states_to_move(pickle_reader)",
        "operator_name] = source.state",
        (_RESCALING,),
    ),
    Bug(
        "a rescale that is refused has closed half of the workers",
        "a check that acts",
        "runtime/processes/host.py",
        "            self._running.ask_all(CHECK_MOVES)",
        "            self._running.ask_all(GATHER)",
        (_RESCALING,),
    ),
    Bug(
        "an error leaves an answer for the next command",
        "replies that nobody waits for",
        "runtime/processes/pool.py",
        "        if in_tick and any(",
        "        if any(",
        (_RESCALING,),
    ),
    Bug(
        "a tick waits for the process that a failed one keeps waiting",
        "a circle of processes",
        "runtime/processes/pool.py",
        "        if in_tick and any(",
        "        if not in_tick and any(",
        (f"{_FAILURES}::test_the_operator_the_record_and_the_function_are_named",),
        120,
    ),
    Bug(
        "new parts begin at no epoch",
        "the epochs of workers without parts are forgotten",
        "runtime/processes/host.py",
        "        raised = raised_epochs(self._program, (it.epochs for it in read), self.parallelism)",
        "        raised = {}",
        (f"{_DISCOVERY}::test_records_of_new_parts_are_late_on_every_worker",),
        60,
    ),
    Bug(
        "positions are confirmed that no snapshot has",
        "the end of a snapshot is taken for its success",
        "engine/parts/discovery.py",
        "if snapshot is None or not positions",
        "if not positions",
        (_CONFIRMATIONS,),
    ),
    Bug(
        "a restart returns to the snapshot that the run was started from",
        "restore= applies to the first attempt only",
        "runtime/attempts.py",
        'replace(options, restore="latest") if attempt.has_begun else options',
        "options",
        ("tests/runtime/test_attempts.py::test_an_attempt_that_has_not_begun_between_two_others",),
    ),
    Bug(
        "a process that has died is waited for",
        "a closed connection is no reply",
        "runtime/processes/pool.py",
        "        return not missing or any(not process.link.is_open for process in missing)",
        "        return not missing",
        (_DEATHS,),
        60,
    ),
]
