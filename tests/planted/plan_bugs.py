"""The planted bugs of plans: plans with side effects, and plans that leave something out."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["PLAN_BUGS"]

_PLANS = "tests/planning/test_plans.py"
_COMMAND = "tests/cli/test_plan.py"

PLAN_BUGS = [
    Bug(
        "a plan claims the job",
        "a start opens the store in this way",
        "snapshot/preview.py",
        "    manifest_log = backend.manifest_log()\n",
        "    manifest_log = backend._opened()\n",
        (f"{_PLANS}::test_start_without_a_snapshot",),
    ),
    Bug(
        "a review forgets the second refusal",
        "a start raises only the first",
        "snapshot/restore.py",
        "    refusals += changed\n",
        "    refusals += [] if refusals else changed\n",
        (f"{_PLANS}::test_all_refusals_are_collected",),
    ),
    Bug(
        "a plan stops at the first failing migration",
        "so does a start",
        "engine/states/rescale.py",
        "        refuse(name, error)\n",
        "        refuse(name, error)\n        raise\n",
        (f"{_PLANS}::test_failing_migrations_are_all_tried",),
    ),
    Bug(
        "a refusal is reported twice",
        "an operator and its hidden state are two entries",
        "snapshot/evolution.py",
        'if changed.isdisjoint((entry.name, entry.name.partition("/")[0]))]',
        "if entry.name not in changed]",
        (f"{_PLANS}::test_plan_says_what_the_start_does",),
    ),
    Bug(
        "a plan restores the sinks",
        "a start restores them, too",
        "runtime/start_plan.py",
        "        self._note_sinks(restored)\n",
        "        from malflow.engine.sinks import RunSinks\n"
        "        RunSinks(self._program.sinks).restore(restored.states)\n"
        "        self._note_sinks(restored)\n",
        (_COMMAND,),
    ),
    Bug(
        "states are read without being asked for",
        "the number of keys could be counted",
        "runtime/start_plan.py",
        "        if deep:\n            planning.load(found)\n",
        "        planning.load(found)\n",
        (f"{_COMMAND}::test_manifests_alone_are_read",),
    ),
]
