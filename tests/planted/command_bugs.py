"""The planted bugs of the command line, and of snapshots that become the latest or are deleted by it."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["COMMAND_BUGS"]

_RUN = "tests/cli/test_run.py"
_CHECK = "tests/cli/test_check.py"
_PROCESSES = "tests/cli/test_processes.py"
_REWINDING = "tests/snapshot/test_rewinding.py"

COMMAND_BUGS = [
    Bug(
        "a script is not the main module",
        "its classes can't be pickled, and its guard hides the run",
        "cli/running/script.py",
        '    sys.modules["__main__"] = module\n',
        "",
        (f"{_RUN}::test_script_is_what_it_is_under_python",),
    ),
    Bug(
        "an import runs the flow",
        "what is named runs twice, the first time with the script's options",
        "cli/running/script.py",
        "    calls.imports = True\n",
        "",
        (f"{_RUN}::test_name_in_a_script",),
    ),
    Bug(
        "processes that a script forks are commands",
        "the hook is copied by a fork",
        "cli/running/script.py",
        "        if not self.descendants.is_here:\n            return runtime",
        "        if False:\n            return runtime",
        (f"{_PROCESSES}::test_children_of_a_script_are_not_touched",),
    ),
    Bug(
        "a mistake is forgotten if the script catches it",
        "a command that did nothing ends with 0",
        "cli/commands/run.py",
        "        if self._refusal is not None:\n            raise self._refusal\n",
        "",
        (f"{_RUN}::test_mistake_that_the_script_catches",),
    ),
    Bug(
        "errors of threads are left to Python",
        "the exit code is 0",
        "cli/commands/run.py",
        "            self._session.code = exit_code(error)\n",
        "            self._session.code = 0\n",
        (f"{_RUN}::test_error",),
    ),
    Bug(
        "a check waits for the script's threads",
        "they wait for a run that never comes",
        "cli/running/inspection.py",
        "    if _is_waited_for():\n        end_process(inspection.code)\n",
        "",
        (f"{_CHECK}::test_command_ends_whatever_the_script_waits_for",),
        seconds=120,
    ),
    Bug(
        "a run that is starting loses its snapshot",
        "the newest manifests are those that a start may be reading",
        "snapshot/rewinding.py",
        "following[0] > newest + 1 - FEWEST_MANIFESTS",
        "False",
        (f"{_REWINDING}::test_deleted_with_all_older_ones",),
    ),
    Bug(
        "a mistyped place becomes a job",
        "a claim creates the job",
        "snapshot/rewinding.py",
        "    wanted_manifest(backend, at)\n    return",
        "    return",
        (f"{_REWINDING}::test_job_that_is_not_there_is_not_created",),
    ),
]
