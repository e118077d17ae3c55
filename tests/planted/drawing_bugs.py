"""The planted bugs of drawings."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["DRAWING_BUGS"]

_LAYOUT = "tests/drawing/test_layout.py"
_TEXTS = "tests/drawing/test_hostile_texts.py"
_FACTS = "tests/drawing/test_facts.py"

DRAWING_BUGS = [
    Bug(
        "marks of direction turn a drawing around",
        "only control characters are escaped",
        "words.py",
        "it if it.isprintable() else",
        'it if it >= " " else',
        (f"{_TEXTS}::test_texts_are_printable_short_and_escaped",),
    ),
    Bug(
        "accents without end are one letter wide",
        "the width is limited, and not the length",
        "drawing/text.py",
        "printable(text[: 2 * limit + 1])",
        "printable(text)",
        (f"{_TEXTS}::test_texts_are_printable_short_and_escaped",),
    ),
    Bug(
        "a name is an element of the picture",
        "the tooltip was forgotten",
        "drawing/svg.py",
        "<title>{markup(chr(10).join([box.label, *box.facts, *box.remarks]))}</title>",
        "<title>{chr(10).join([box.label, *box.facts, *box.remarks])}</title>",
        (f"{_TEXTS}::test_texts_are_printable_short_and_escaped",),
    ),
    Bug(
        "a part is an element of the page",
        "cells of tables hold what the program says",
        "drawing/text.py",
        'return markup(fitted(f"{cell:,}" if is_number else str(cell), _LONGEST))',
        'return fitted(f"{cell:,}" if is_number else str(cell), _LONGEST)',
        (f"{_TEXTS}::test_tables_show_texts_as_text",),
    ),
    Bug(
        "a quote ends a label of Mermaid",
        "codes are for markup only",
        "drawing/formats.py",
        '_PLAIN = frozenset(" _,/=")',
        """_PLAIN = frozenset(' _,/="')""",
        (f"{_TEXTS}::test_texts_are_printable_short_and_escaped",),
    ),
    Bug(
        "a backslash is an escape of Graphviz",
        "quotes alone are escaped",
        "drawing/formats.py",
        '"\\\\": "\\\\\\\\", ',
        "",
        (f"{_TEXTS}::test_texts_are_printable_short_and_escaped",),
    ),
    Bug(
        "stages share columns",
        "the longest path decides alone",
        "drawing/layers.py",
        "        columns[node] = max(columns[node], start)\n",
        "",
        (f"{_LAYOUT}::test_stages_follow_each_other_from_left_to_right",),
    ),
    Bug(
        "long edges pass under operators",
        "a bend is missing",
        "drawing/layers.py",
        "for column in range(columns[source] + 1, columns[target]):",
        "for column in range(columns[source] + 2, columns[target]):",
        (f"{_LAYOUT}::test_nodes_do_not_overlap_and_edges_run_to_the_right",),
    ),
    Bug(
        "operators lie on each other",
        "a block is pooled with one before it only",
        "drawing/layers.py",
        "while blocks and blocks[-1][0] > mean:",
        "if blocks and blocks[-1][0] > mean:",
        (f"{_LAYOUT}::test_nodes_do_not_overlap_and_edges_run_to_the_right",),
    ),
    Bug(
        "lines in a terminal run into each other",
        "a line enters below the output of another",
        "drawing/boxes.py",
        "free = [x for x in range(first, last + 1) if x not in taken]",
        "free = [*range(first, last + 1)]",
        (f"{_LAYOUT}::test_lines_of_boxes_lead_to_the_right_operators",),
    ),
    Bug(
        "two lines share a track",
        "a track is free where the last line ends somewhere",
        "drawing/boxes.py",
        "if end < left - 1), len(ends))",
        "if end < right), len(ends))",
        (f"{_LAYOUT}::test_lines_of_boxes_lead_to_the_right_operators",),
    ),
    Bug(
        "operators of a chain are one box",
        "the names were not compared",
        "drawing/picture.py",
        "vertices[before].node.name == vertex.node.name and ",
        "",
        (f"{_LAYOUT}::test_every_operator_and_edge_is_drawn",),
    ),
    Bug(
        "late records have the name of another output",
        "outputs are numbered",
        "drawing/picture.py",
        '        return ("on_time", "late")\n',
        '        return ("late", "on_time")\n',
        (f"{_FACTS}::test_names_of_outputs_are_those_of_the_results",),
    ),
]
