"""Why an operator gets no epochs (watermarks) at all."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from malflow.engine.plan import epochs_along
from malflow.nodes import EpochsNode, SourceNode
from malflow.operators.contract import StatefulLogic, StatelessLogic, overridden
from malflow.operators.stateless import InspectFrontier
from malflow.runtime.why_answer import Fact, Found
from malflow.runtime.why_flow import Flow
from malflow.words import quoted

__all__ = ["gets_epochs", "heeds_epochs", "no_epochs"]


def gets_epochs(flow: Flow, vertex: int) -> bool:
    """Whether a generator of epochs is upstream of a vertex."""
    return bool(epochs_along(flow.program)[vertex])


def heeds_epochs(flow: Flow, vertex: int) -> bool:
    """Whether the user's code of an operator is called with epochs."""
    made = getattr(flow.node(vertex), "logic", None)
    if not isinstance(made, partial):
        return False
    logic = made.keywords.get("logic")
    bases = StatefulLogic, StatelessLogic
    return made.func is InspectFrontier or (
        logic is not None and all(overridden(logic, "on_epoch", base) is not None for base in bases)
    )


def no_epochs(flow: Flow, vertex: int, held: str = "is called with epochs") -> Found:
    """Return why an operator gets no epochs.

    Args:
        flow: the way of records.
        vertex: the operator.
        held: the results that wait for them, as a sentence without its subject.
    """
    name, above = flow.name(vertex), set(flow.upstream(vertex))
    source = next((flow.name(at) for at in flow.upstream(vertex) if isinstance(flow.node(at), SourceNode)), "")
    facts: dict[str, Fact] = {"source": source, "taken": flow.taken(vertex)}
    others = [at for at in _generators(flow) if at not in above and above.intersection(flow.upstream(at))]
    if others:
        other = quoted(flow.name(others[0]))
        text = (
            f"operator {quoted(name)} {held}, but gets none: it reads the stream from before operator {other}, which "
            f"generates them. Call it on the stream that {other} returns: streams are values, and each method returns "
            "a new one."
        )
        return Found("reads_before", name, text, facts | {"generator": flow.name(others[0])})
    text = (
        f"operator {quoted(name)} {held}, but gets none: nothing generates them after source {quoted(source)}. Call "
        ".event_time() or .generate_epochs() on the stream before it; without them, it gets one epoch, at the end of "
        "the input."
    )
    return Found("no_epochs", name, text, facts)


def _generators(flow: Flow) -> Iterable[int]:
    return (at for at in range(len(flow.program.vertices)) if isinstance(flow.node(at), EpochsNode))
