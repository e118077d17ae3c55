"""The page that describes the format names everything that is written."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import malflow
from malflow.names import written_name
from malflow.snapshot.codecs.classes import declared_class
from malflow.snapshot.codecs.msgpack_types import FORMS, RECORD
from malflow.snapshot.codecs.shapes import Shape
from malflow.snapshot.files import data_file
from malflow.snapshot.files.data_file import Section
from malflow.snapshot.protocol import manifest
from malflow.snapshot.protocol.manifest import FileEntry, Manifest, StateEntry
from malflow.states.kinds import StateKind

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("record", [Manifest, FileEntry, StateEntry, Shape, Section])
def test_members_are_described(record: Any) -> None:
    inside = {"frame"}  # of a section: its bytes, which the header does not hold
    assert [field.name for field in fields(record) if f"`{field.name}`" not in PAGE and field.name not in inside] == []


def test_kinds_of_states_are_described() -> None:
    assert [kind.word for kind in StateKind if f"`{kind.word}`" not in PAGE] == []


def test_codes_of_msgpack_are_described() -> None:
    assert [code for code in {RECORD, *(form.code for form in FORMS)} if f"\n| {code} | " not in PAGE] == []


def test_classes_of_malflow_are_described() -> None:
    package = Path(malflow.__file__).parent
    sources = (path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    names = {name for text in sources for name in re.findall(r'^@written_as\("(malflow\.\w+)"\)', text, re.MULTILINE)}
    assert "malflow.LinePosition" in names
    assert [name for name in names if f"`{name}`" not in PAGE] == []
    assert [name for name in names if written_name(declared_class(name) or object) != name] == []


def test_versions_are_described() -> None:
    versions = PAGE.split("## Versions", 1)[1].split("Every version", 1)[0]
    assert "| manifest | 1 | |\n| | 2 |" in versions
    assert f"\n| | {manifest.FORMAT} |" in versions
    assert "| data file | 1 | |\n| | 2 |" in versions
    assert data_file.FORMAT == 2
