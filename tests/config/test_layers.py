"""Layers hide each other in their order: values and places, against a model of ten lines."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.config import Settings, load, shown_settings
from malflow.config.entries import dotted
from tests.config.model import leaves, merged

NAMES = ["a", "b", "c"]
VALUES = st.integers(1, 9)
TREES = st.recursive(VALUES, lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, min_size=1), max_leaves=6)
TABLES = st.fixed_dictionaries(
    {},
    optional={
        "run": st.fixed_dictionaries({}, optional={"parallelism": VALUES, "restore": VALUES}),
        "persistence": st.fixed_dictionaries(
            {}, optional={"retain": VALUES, "storage_options": st.dictionaries(st.sampled_from(NAMES), TREES)}
        ),
        "processes": st.fixed_dictionaries(
            {}, optional={"restart": st.fixed_dictionaries({}, optional={"attempts": VALUES})}
        ),
        "errors": st.fixed_dictionaries({}, optional={"budget": st.just({"at_least": 7}), "keep": VALUES}),
    },
)
"""Tables with few settings, so that layers meet in them."""

Tree = Mapping[str, Any]


def toml(tree: Tree, before: tuple[str, ...] = ()) -> str:
    """Return tables as lines of dotted keys."""
    return "".join(f"{dotted((*before, *path))} = {value}\n" for path, value in leaves(tree))


def variables(tree: Tree) -> dict[str, str]:
    return {"MALFLOW_" + "__".join(path).upper(): str(value) for path, value in leaves(tree)}


def without_options(tree: Tree) -> Tree:
    """Return tables without entries whose values would stay text in a variable."""
    return {name: {key: it for key, it in table.items() if key != "storage_options"} for name, table in tree.items()}


def loaded(file: Tree, profile: Tree, env: Tree, overrides: Tree) -> Settings:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "malflow.toml")
        path.write_text(
            toml(file) + toml({"profile": {"p": {**profile, "log": {"level": "info"}}}}).replace("= info", '= "info"')
        )
        given = {dotted(path): value for path, value in leaves(overrides)}
        return load(path, profile="p", env=variables(env), overrides=given)


@given(TABLES, TABLES, TABLES.map(without_options), TABLES)
@pytest.mark.slow
def test_values_and_places_are_those_of_the_model(file: Tree, profile: Tree, env: Tree, overrides: Tree) -> None:
    settings = loaded(file, profile, env, overrides)
    layers = {"malflow.toml": file, "[profile.p]": profile, "MALFLOW_": env, "--set": overrides}
    expected: Any = {}
    places: Any = {}
    for place, tree in layers.items():
        expected = merged(expected, tree)
        places = merged(places, marked(tree, place))
    shown = {it.key: it for it in shown_settings(settings, defaults=False) if it.key != "log.level"}
    assert {key: it.value for key, it in shown.items()} == {dotted(path): str(it) for path, it in leaves(expected)}
    for path, place in leaves(places):
        origin = shown[dotted(path)].origin
        assert place in origin
        assert ("[profile.p]" in origin) == (place == "[profile.p]")
    for path, value in leaves(expected):
        found: Any = settings
        for name in path:
            found = found[name] if isinstance(found, Mapping) else getattr(found, name)
        assert found == value


def marked(tree: Any, place: str) -> Any:
    return {name: marked(it, place) for name, it in tree.items()} if isinstance(tree, Mapping) else place


def test_a_hidden_value_is_shown_with_its_place() -> None:
    settings = loaded({"run": {"parallelism": 4}}, {"run": {"parallelism": 16}}, {}, {})
    [shown] = [it for it in shown_settings(settings) if it.key == "run.parallelism"]
    assert (shown.value, len(shown.hides), shown.hides[0][0]) == ("16", 1, "4")
    assert shown.origin.endswith("malflow.toml:2 [profile.p]")
    assert shown.hides[0][1].endswith("malflow.toml:1")


def test_a_table_replaces_a_value_and_a_value_a_table() -> None:
    def options(value: Any) -> Tree:
        return {"persistence": {"storage_options": {"a": value}}}

    assert loaded(options(1), options({"b": 2}), {}, {}).persistence.storage_options == {"a": {"b": 2}}
    assert loaded(options({"b": 2}), options(1), {}, {}).persistence.storage_options == {"a": 1}
