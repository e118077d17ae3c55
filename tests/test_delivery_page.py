"""The table of deliveries in docs/semantics.md promises what each class of sinks declares."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import malflow.connectors
import malflow.sinks
from malflow.sinks import ResumableSinkImpl, StatelessSinkImpl, TransactionalSinkImpl

PAGE = Path(__file__).parents[1] / "docs" / "semantics.md"
ONCE, AT_LEAST_ONCE = "exactly once", "at least once"


def sinks() -> Iterator[type[Any]]:
    """Yield the sinks of malflow and of its connectors, but not those that are there to be derived from."""
    for package in (malflow.sinks, malflow.connectors):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for kind in vars(importlib.import_module(found.name)).values():
                is_own = inspect.isclass(kind) and kind.__module__ == found.name
                if is_own and issubclass(kind, StatelessSinkImpl) and is_made(kind):
                    yield kind


def is_made(kind: type[Any]) -> bool:
    """Whether a class is one that users make, and not one to derive from."""
    return not inspect.isabstract(kind) and kind.__name__.endswith("Sink")


def promised() -> dict[str, list[str]]:
    """Return the deliveries that the table promises of each name between backticks."""
    section = PAGE.read_text(encoding="utf-8").split("## Delivery\n")[1].split("\n## ")[0]
    found = defaultdict(list)
    for line in section.splitlines():
        if line.startswith("| ") and not line.startswith("| sink"):
            names, delivery = line.strip("| ").split(" | ")
            for name in names.split("`")[1::2]:
                found[name].append(next((it for it in (ONCE, AT_LEAST_ONCE) if delivery.startswith(it)), ""))
    return found


def declared(kind: type[Any]) -> dict[str, str]:
    """Return what a sink declares: its delivery by default, and the one that its option offers."""
    option, name = inspect.signature(kind).parameters.get("delivery"), kind.__name__
    if option is None:
        return {name: ONCE if issubclass(kind, ResumableSinkImpl | TransactionalSinkImpl) else AT_LEAST_ONCE}
    if option.default != "at-least-once":  # None: a file on local disk, or a folder
        return {name: ONCE}
    return {name: AT_LEAST_ONCE, f'{name}(delivery="exactly-once")': ONCE}


@pytest.mark.parametrize("kind", list(sinks()))
def test_the_page_promises_what_a_sink_declares(kind: type[Any]) -> None:
    page = promised()
    for name, delivery in declared(kind).items():
        assert page[name], f"docs/semantics.md, 'Delivery', has no row for {name}, which is {delivery}"
        assert page[name][0] == delivery, name


def test_the_page_names_no_sink_that_is_gone() -> None:
    names = {name.partition("(")[0] for name in promised()}
    assert {name for name in names if name.endswith("Sink")} == {kind.__name__ for kind in sinks()}
