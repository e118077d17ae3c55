"""Names of states and their definitions are read for ever: another version of malflow goes on from them.

Each ``goldens/NAME.txt`` has the states of a text: of ``goldens/NAME.sql``, or of a query of Nexmark. None of these
files may change: the snapshots of users have what is in them. ``python -m tests.sql.test_goldens`` writes what is not
there yet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from malflow import StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.engine.state_specs import states_of
from malflow.graph import Graph
from malflow.states.kinds import StateKind
from malflow.testing import sql_dataflow

FOLDER = Path(__file__).parent / "goldens"
NEXMARK = Path(__file__).parent / "nexmark"
QUERIES = ("q0", "q1", "q2", "q5", "q7", "q8", "q11", "q14", "q21", "q22")
TEXTS = [*sorted(it.stem for it in FOLDER.glob("*.sql")), *QUERIES]


def states(name: str) -> str:
    """Return the states of a text: the name, the kind and the definition of each."""
    text = "\n".join((NEXMARK / f"{it}.sql").read_text() for it in ("tables", name)) if name in QUERIES else ""
    graph = Graph()
    sql_dataflow(text or (FOLDER / f"{name}.sql").read_text(), "shop")(StreamProvider(graph))
    specs = states_of(compile_graph(graph))
    shown = (it for it in specs if it.kind not in {StateKind.LETTERS, StateKind.FRONTIER})
    return "".join(f"{it.name} | {it.kind.word} | {it.definition or 'none'} | {it.panes or 'none'}\n" for it in shown)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_has_the_states_that_it_always_had(name: str) -> None:
    assert states(name) == (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    for missing in TEXTS:
        if not (FOLDER / f"{missing}.txt").exists():
            (FOLDER / f"{missing}.txt").write_text(states(missing))
