"""The facts that node kinds declare, which the passes over a graph use."""

from __future__ import annotations

from typing import get_args

import pytest

from malflow import nodes


def kinds(fact: str) -> set[type]:
    return {kind for kind in get_args(nodes.Node) if getattr(kind, fact)}


@pytest.mark.parametrize(
    ("fact", "those"),
    [
        ("starts_stage", {nodes.ExchangeNode}),
        ("issues_epochs", {nodes.EpochsNode}),
    ],
)
def test_facts_of_each_kind_of_node(fact: str, those: set[type]) -> None:
    assert kinds(fact) == those


def test_every_kind_of_node_states_its_facts() -> None:
    assert all(issubclass(kind, nodes.NodeFacts) for kind in get_args(nodes.Node))
