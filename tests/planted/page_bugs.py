"""The planted bugs of the page: its marks and texts, and its behaviour when the run does not answer."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["PAGE_BUGS"]

_LOOKS = "tests/serve/browser/test_looks.py"
_ACTS = "tests/serve/browser/test_acts.py"

PAGE_BUGS = [
    Bug(
        "the operators that starve are marked instead of the cause",
        "an operator without input looks like the culprit",
        "serve/page/figures.js",
        "why?.is_fault && !isOver(progress) ? why.stops_at : null",
        "why?.is_fault && !isOver(progress) ? operators.find((it) => it.in === 0)?.name : null",
        (f"{_LOOKS}::test_a_stalled_part_is_told_and_the_cause_is_marked",),
    ),
    Bug(
        "marks of writing direction are not made visible",
        "they only change how a name is displayed",
        "serve/page/format.js",
        "return cut.replace(HIDDEN, ",
        "return cut.replace(/(?!)/g, ",
        (f"{_LOOKS}::test_hostile_names_and_values_are_text",),
    ),
    Bug(
        "a page without control has its buttons",
        "the server refuses such requests anyway",
        "serve/page/live.js",
        "control: page.control === true",
        "control: page.control !== undefined",
        (f"{_ACTS}::test_without_control_a_page_steers_nothing",),
    ),
    Bug(
        "the last state of a killed run is shown as current",
        "no answer is no news",
        "serve/page/live.js",
        'phase: failures >= 2 || this.state.progress === null ? "lost" : this.state.phase',
        'phase: this.state.progress === null ? "lost" : this.state.phase',
        (f"{_LOOKS}::test_a_killed_run_is_said_to_be_out_of_reach",),
    ),
    Bug(
        "the token stays in the address bar",
        "the page needs it until it has logged in",
        "serve/page/session.js",
        '  history.replaceState(null, "", location.pathname + location.search);\n',
        "",
        (f"{_LOOKS}::test_a_run_is_shown_and_nothing_goes_wrong",),
    ),
    Bug(
        "a chain begins in one stage and ends in the next",
        "the stage is a detail of the engine",
        "drawing/chains.py",
        "not is_end and not second.exchange and first.stage == second.stage",
        "not is_end",
        ("tests/drawing/test_layout.py::test_chains_have_every_operator_once_and_keep_the_edges_between_them",),
    ),
]
