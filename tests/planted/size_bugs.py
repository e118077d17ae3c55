"""The planted bugs of the sizes of states."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["SIZE_BUGS"]

_TESTS = "tests/snapshot/test_sizes.py"

SIZE_BUGS = [
    Bug(
        "only the first states are measured",
        "a slice is as large as the one before it",
        "snapshot/files/sections.py",
        "                start, found.usual = start + count, size / count\n",
        "                start, found.usual = start + count, float(LARGE)\n",
        (f"{_TESTS}::test_the_largest_state_is_found_wherever_it_is",),
    ),
    Bug(
        "a state that shrank in between counts as growing",
        "it has more keys than at first",
        "snapshot/sizes.py",
        "self._grown.get(name, 0) + 1 if grows else 0",
        "self._grown.get(name, 0) + bool(grows)",
        (f"{_TESTS}::test_states_that_only_grow_are_told_once",),
    ),
    Bug(
        "a large state is told in each snapshot",
        "it is large in each",
        "snapshot/sizes.py",
        "if (name, what) not in self._told:",
        "if name:",
        (f"{_TESTS}::test_states_that_only_grow_are_told_once",),
    ),
]
