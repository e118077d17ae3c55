"""The planted bugs of the terminal: taps, shown records, the live area and reloads."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["TERMINAL_BUGS"]

_OF_SAMPLES = "tests/monitor/test_samples.py"
_OF_LIVE = "tests/cli/test_live.py"
_OF_RELOAD = "tests/cli/test_reload.py"

TERMINAL_BUGS = [
    Bug(
        "a tap still sees records after its end",
        "an ended tap is not added again",
        "engine/taps.py",
        "            worker.targets_of(port).remove(target)\n",
        "            pass\n",
        (f"{_OF_SAMPLES}::test_a_tap_that_ends_leaves_the_targets_as_they_were",),
    ),
    Bug(
        "a record is shown if redact fails",
        "the user's redact function does not fail",
        "monitor/samples.py",
        '            return _hidden(f"<hidden: redact failed with {type(error).__name__}>")\n',
        "            found = message\n",
        (f"{_OF_SAMPLES}::test_records_are_redacted_first",),
    ),
    Bug(
        "a rescale loses the taps",
        "workers live as long as their run",
        "runtime/single_thread_host.py",
        "        self._tapping.forget()\n",
        "        pass\n",
        (f"{_OF_SAMPLES}::test_taps_outlive_a_rescale",),
    ),
    Bug(
        "a wrapped line counts as one row",
        "terminals keep their width",
        "cli/output/live.py",
        "rows = sum(max(1, -(-width // columns)) for width in self._drawn)",
        "rows = len(self._drawn)",
        (f"{_OF_LIVE}::test_lines_that_a_narrower_terminal_has_wrapped_are_removed",),
    ),
    Bug(
        "the area is drawn in the middle of the script's line",
        "all output ends with a line break",
        "cli/output/live.py",
        "if self._is_gone or self._is_within_line or self._is_still:",
        "if self._is_gone or self._is_still:",
        (f"{_OF_LIVE}::test_the_area_is_below_all_that_is_written",),
    ),
    Bug(
        "a changed module is not noticed",
        "only new and removed modules matter",
        "cli/running/reload.py",
        "if before.get(it) != now.get(it)",
        "if it not in before or it not in now",
        (f"{_OF_RELOAD}::test_modules_below_a_folder",),
    ),
]
