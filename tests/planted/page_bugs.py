"""The planted bugs of the page: what it marks, shows and believes, and what it does when nobody answers."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["PAGE_BUGS"]

_LOOKS = "tests/serve/browser/test_looks.py"
_ACTS = "tests/serve/browser/test_acts.py"

PAGE_BUGS = [
    Bug(
        "the victims of a standstill are marked",
        "the operator that gets nothing is not the one that gives nothing",
        "serve/page/figures.js",
        "why?.is_fault && !isOver(progress) ? why.stops_at : null",
        "why?.is_fault && !isOver(progress) ? operators.find((it) => it.in === 0)?.name : null",
        (f"{_LOOKS}::test_a_stalled_part_is_told_and_the_cause_is_marked",),
    ),
    Bug(
        "marks of writing direction are shown as they are",
        "a name that reads otherwise than it is",
        "serve/page/format.js",
        "return cut.replace(HIDDEN, ",
        "return cut.replace(/(?!)/g, ",
        (f"{_LOOKS}::test_hostile_names_and_values_are_text",),
    ),
    Bug(
        "a page without control has its buttons",
        "what is refused is offered",
        "serve/page/live.js",
        "control: page.control === true",
        "control: page.control !== undefined",
        (f"{_ACTS}::test_without_control_a_page_steers_nothing",),
    ),
    Bug(
        "the last state of a killed run is shown as its present one",
        "no answer is no news",
        "serve/page/live.js",
        'phase: failures >= 2 || this.state.progress === null ? "lost" : this.state.phase',
        'phase: this.state.progress === null ? "lost" : this.state.phase',
        (f"{_LOOKS}::test_a_killed_run_is_said_to_be_out_of_reach",),
    ),
    Bug(
        "the token stays in the address bar",
        "a screenshot gives it away",
        "serve/page/session.js",
        '  history.replaceState(null, "", location.pathname + location.search);\n',
        "",
        (f"{_LOOKS}::test_a_run_is_shown_and_nothing_goes_wrong",),
    ),
    Bug(
        "a chain begins in one stage and ends in the next",
        "records move between workers within a box",
        "drawing/chains.py",
        "not is_end and not second.exchange and first.stage == second.stage",
        "not is_end",
        ("tests/drawing/test_layout.py::test_chains_have_every_operator_once_and_keep_the_edges_between_them",),
    ),
]
