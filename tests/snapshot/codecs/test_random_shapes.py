"""Random classes that change at random: what is refused, and what a migration gets, as a plain model has it.

The model knows records as a name, a kind and a list of fields with values, and nothing of pickles.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SnapshotError
from malflow.snapshot import FsspecBackend
from tests.kit.backends import in_memory
from tests.kit.evolving import keep, module, opened

pytestmark = [pytest.mark.slow, pytest.mark.damages_snapshots("the classes in them change")]

NAME = "a_job_that_changes"
BY_PLACE = ("tuple", "frozen slots")
KINDS = {
    "tuple": "class {name}(NamedTuple):\n{fields}",
    "dataclass": "@dataclass\nclass {name}:\n{fields}",
    "slots": "@dataclass(slots=True)\nclass {name}:\n{fields}",
    "frozen": "@dataclass(frozen=True)\nclass {name}:\n{fields}",
    "frozen slots": "@dataclass(frozen=True, slots=True)\nclass {name}:\n{fields}",
    "inherited": "@dataclass\nclass Base{name}:\n{fields}\nclass {name}(Base{name}):\n    pass",
}
if find_spec("attrs"):
    KINDS["attrs"] = "@attrs.define\nclass {name}:\n{fields}"
    KINDS["attrs dict"] = "@attrs.define(slots=False)\nclass {name}:\n{fields}"
if find_spec("pydantic"):
    KINDS["pydantic"] = "class {name}(pydantic.BaseModel):\n{fields}"
ALIKE = ({"dataclass", "frozen", "inherited"}, {"attrs", "attrs dict"})
"""Kinds whose states are written in one way."""

FIELDS = ("n", "total", "count", "keys", "seen")
CLASSES = ("Acc", "Other")


@dataclass(frozen=True)
class Class:
    """A class of the program, at one time."""

    kind: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """A state, or a part of one."""

    name: str
    values: tuple[Any, ...]


classes = st.builds(
    Class,
    st.sampled_from(sorted(KINDS)),
    st.permutations(FIELDS).flatmap(lambda f: st.integers(1, 4).map(lambda n: tuple(f[:n]))),
)
programs = st.fixed_dictionaries(dict.fromkeys(CLASSES, classes))


@st.composite
def changes(draw: st.DrawFn) -> tuple[dict[str, Class], dict[str, Class | None]]:
    """Draw a program, and what becomes of each of its classes."""
    before = draw(programs)
    after: dict[str, Class | None] = {}
    for name, held in before.items():
        after[name] = draw(
            st.sampled_from([held, None])
            | st.permutations(held.fields).map(lambda fields, kind=held.kind: Class(kind, tuple(fields)))  # type: ignore[misc] # mypy knows no defaults
            | classes.map(lambda other, fields=held.fields: Class(other.kind, fields))  # type: ignore[misc] # as above
            | classes
        )
    return before, after


@st.composite
def values(draw: st.DrawFn, program: dict[str, Class]) -> Any:
    """Draw a state: plain data, records, and records in either."""
    leaves = st.none() | st.integers() | st.text(max_size=3)

    def records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.sampled_from(CLASSES).flatmap(
            lambda name: st.tuples(*(inner for _ in program[name].fields)).map(lambda held: Record(name, held))
        )

    nested = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2) | records(inner)
        ),
        max_leaves=8,
    )
    return draw(records(nested) | nested.filter(lambda value: value is not None))


def program_of(program: Mapping[str, Class | None]) -> Any:
    libraries = "".join(f"import {name}\n" for name in ("attrs", "pydantic") if find_spec(name))
    bodies = []
    for name, held in program.items():
        if held is not None:
            fields = "\n".join(f"    {field}: Any" for field in held.fields)
            bodies.append(KINDS[held.kind].format(name=name, fields=fields))
    return module(libraries + "\n".join(bodies))


def made(value: Any, program: Mapping[str, Class], held: Any) -> Any:
    """Make the state that the model has."""
    if isinstance(value, Record):
        fields = program[value.name].fields
        return getattr(held, value.name)(
            **{f: made(v, program, held) for f, v in zip(fields, value.values, strict=True)}
        )
    if isinstance(value, list):
        return [made(part, program, held) for part in value]
    return {key: made(part, program, held) for key, part in value.items()} if isinstance(value, dict) else value


def names_in(value: Any) -> set[str]:
    if isinstance(value, Record):
        return {value.name}.union(*map(names_in, value.values))
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(names_in, parts))


def is_as_before(old: Class, new: Class | None) -> bool:
    """Whether what was written of the old class means the same to the new one."""
    if new is None:
        return False
    alike = old.kind == new.kind or any({old.kind, new.kind} <= kinds for kinds in ALIKE)
    same = old.fields == new.fields if old.kind in BY_PLACE else set(old.fields) == set(new.fields)
    return alike and same


def told(value: Any, same: Any, held: Any) -> Any:
    """Take apart what a migration was given, into a form that can be compared."""
    if isinstance(value, list):
        return [told(part, same, held) for part in value]
    if type(value) is dict:
        return {key: told(part, same, held) for key, part in value.items()}
    for name in CLASSES:
        if name in same and type(value) is getattr(held, name):
            return name, {field: told(getattr(value, field), same, held) for field in same[name].fields}
        if type(value).__name__ == name:
            assert not hasattr(held, name) or not isinstance(value, getattr(held, name))
            assert list(value.keys()) == [field for field, _ in value.items()]
            return name, {field: told(part, same, held) for field, part in dict(value).items()}
    return value


def model_of(value: Any, program: Mapping[str, Class]) -> Any:
    if isinstance(value, Record):
        fields = program[value.name].fields
        return value.name, {f: model_of(v, program) for f, v in zip(fields, value.values, strict=True)}
    if isinstance(value, list):
        return [model_of(part, program) for part in value]
    return {key: model_of(part, program) for key, part in value.items()} if isinstance(value, dict) else value


def kept_in(backend: FsspecBackend, states: dict[str, Any]) -> None:
    """Keep the states in a base and increments over it, or all at once."""
    half = len(states) // 2
    items = list(states.items())
    keep(backend, dict(items[:half]))
    keep(backend, dict(items[half:]), parallelism=1)


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    yield
    sys.modules.pop(NAME, None)


@given(st.data())
def test_random_classes_that_change(data: st.DataObject) -> None:
    before, after = data.draw(changes())
    states = data.draw(st.dictionaries(st.text(max_size=3), values(before), min_size=1, max_size=4))
    backend = in_memory(growth=data.draw(st.sampled_from([1e9, 1e-9])))
    held = program_of(before)
    kept_in(backend, {key: made(value, before, held) for key, value in states.items()})
    changed = program_of(after)
    used = names_in(list(states.values()))
    same = {name: after[name] for name in used if is_as_before(before[name], after[name])}
    workers = data.draw(st.integers(1, 3))
    if used - set(same):
        with pytest.raises(SnapshotError, match=r"operator 'acc': .*(changed since|can't be found).*increase version="):
            opened(backend, parallelism=workers)
    else:
        opened(backend, parallelism=workers)
    found: dict[str, Any] = {}

    def migrate(old: Any, version: int) -> Any:
        assert version == 1
        shown = repr(told(old, same, changed))
        found[shown] = found.get(shown, 0) + 1
        return shown

    migrated = opened(backend, parallelism=workers, version=2, migrate=migrate)
    assert migrated == {key: repr(order(model_of(value, before), same)) for key, value in states.items()}


def order(value: Any, same: Mapping[str, Class]) -> Any:
    """Order the fields of what is an instance as they are in its class now."""
    if isinstance(value, tuple):
        name, fields = value
        names = same[name].fields if name in same else fields
        return name, {field: order(fields[field], same) for field in names}
    if isinstance(value, list):
        return [order(part, same) for part in value]
    return {key: order(part, same) for key, part in value.items()} if isinstance(value, dict) else value
