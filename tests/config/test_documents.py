"""A configuration as documents, as TOML that reads back, and its schema."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.config import load, schema, settings_document, shown_settings, toml_text
from malflow.config.documents import description
from malflow.config.sections import WHOLE, Entries, RunSettings, SparkSettings, TableShape

TEXTS = st.text(st.sampled_from("ab\"'\\${}\n\t é "), max_size=8)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "run.snapshots": st.sampled_from(["250ms", "90s", "2h", "1d", "0.5s"]),
        "run.restore": st.sampled_from(["latest", 7, "2026-05-01T10:00:00+02:00", "none"]),
        "run.debug": st.booleans(),
        "persistence.growth": st.floats(0.5, 9),
        "persistence.storage_options": st.dictionaries(
            st.sampled_from(["a b", "c.d", "e"]), TEXTS | st.lists(st.integers())
        ),
        "spark.conf": st.dictionaries(st.just("spark.x.y"), TEXTS),
        "spark.name": TEXTS.filter(lambda text: text != "none"),
        "errors.keep_bytes": st.integers(1, 10**12),
        "errors.budget.share": st.floats(0, 1),
        'operators."a.b".options': st.dictionaries(st.sampled_from(["x", "y z"]), TEXTS | st.booleans()),
        "operators.orders.retry.on": st.lists(st.sampled_from(["OSError", "ValueError"])),
    },
)


@given(SETTINGS)
@pytest.mark.slow
def test_toml_reads_back(overrides: dict[str, Any]) -> None:
    settings = load(None, env={}, overrides=overrides)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "malflow.toml")
        path.write_text(toml_text(settings), encoding="utf-8")
        again = load(path, env={})
    names = {it.key: it.value for it in shown_settings(settings, defaults=False)}
    assert {it.key: it.value for it in shown_settings(again, defaults=False)} == names


def test_a_document_has_every_setting_as_json() -> None:
    settings = load(
        None, env={}, overrides={"run.snapshots": "90s", "run.restore": "2026-05-01", "serve.token": "hush"}
    )
    document = json.loads(json.dumps(settings_document(settings)))
    found = {it["key"]: it for it in document["settings"]}
    assert (document["malflow"], document["kind"], document["file"]) == (1, "config", None)
    assert found["run.snapshots"]["value"] == 90
    assert found["run.restore"]["value"] == "2026-05-01T00:00:00.000000Z"
    assert found["serve.token"]["value"] == "***"
    assert found["errors.keep_bytes"] == {"key": "errors.keep_bytes", "value": 2**26, "origin": "default", "hides": []}
    assert found["run.persistence"]["value"] is None


def properties(node: dict[str, Any], shape: TableShape, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the settings that the tables have and the schema lacks."""
    for name, member in shape.members.items():
        here = node["properties"].get(name)
        if here is None:
            yield (*path, name)
        elif isinstance(member, TableShape):
            yield from properties(here, member, (*path, name))
        elif isinstance(member, Entries) and isinstance(member.inner, TableShape):
            yield from properties(here["additionalProperties"], member.inner, (*path, name, "*"))


def test_the_schema_has_every_setting_of_a_file() -> None:
    whole = schema()
    assert set(properties(whole, WHOLE)) == {("run", "renamed"), ("run", "allow_dropped_state")}
    assert whole["additionalProperties"] is False
    profile = whole["properties"]["profile"]["additionalProperties"]
    assert set(profile["properties"]) == set(WHOLE.members)
    parallelism = whole["properties"]["run"]["properties"]["parallelism"]
    assert parallelism["anyOf"] == [{"type": "integer"}, {"const": "none"}, {"type": "string", "pattern": r"\$\{"}]
    assert json.loads(json.dumps(whole)) == whole


def test_every_setting_has_a_description() -> None:
    def undescribed(shape: TableShape) -> Iterator[str]:
        for name, member in shape.members.items():
            inner = member.inner if isinstance(member, Entries) else member
            if isinstance(inner, TableShape):
                yield from undescribed(inner)
            elif not description(shape.table, name):
                yield f"{shape.table.__name__}.{name}"

    assert list(undescribed(WHOLE)) == []
    assert description(RunSettings, "snapshots").startswith("the interval between snapshots")
    assert description(SparkSettings, "conf").startswith("settings of the session")
