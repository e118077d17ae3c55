"""States of classes that change from one run to the next: refused at the start, or given to a migration as fields."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime, SnapshotError, StreamProvider
from malflow.sinks import StatefulSink, VecSink
from malflow.snapshot import FsspecBackend, MsgpackCodec, fsck, snapshots
from malflow.snapshot.codecs.contract import PickleCodec
from malflow.snapshot.protocol.manifest import Manifest
from malflow.sources import SingleIteratorSource, StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import in_memory, kept_states
from tests.kit.counting import MOMENT
from tests.kit.evolving import keep, module, opened

pytestmark = pytest.mark.damages_snapshots(
    reason="the classes in them change, so that the last program may not start again"
)

NAME = "a_job_that_changes"
OF_N = "class Acc(NamedTuple):\n n: int = 0"
OF_N_AND_TOTAL = "class Acc(NamedTuple):\n n: int\n total: int"


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    yield
    sys.modules.pop(NAME, None)


def kept_of(source: str, state: str, **options: Any) -> FsspecBackend:
    """Keep a state whose class is in a module of this source."""
    backend = in_memory(**options)
    keep(backend, {"a": eval(state, vars(module(source)))})  # noqa: S307 - the tests' own
    return backend


def refusal(backend: FsspecBackend, **options: Any) -> str:
    before = list(snapshots(backend))
    with pytest.raises(SnapshotError) as raised:
        opened(backend, **options)
    assert list(snapshots(backend)) == before
    return str(raised.value)


def manifest_of(backend: FsspecBackend) -> Manifest:
    manifest_log = backend.manifest_log()
    assert manifest_log.find() is not None
    return list(manifest_log.manifests())[-1]


# Refused


@pytest.mark.fault("G6")
@pytest.mark.parametrize(
    ("before", "state", "after", "both"),
    [
        (OF_N, "Acc(5)", OF_N_AND_TOTAL, "snapshot has (n), program has (n, total)"),
        (OF_N, "Acc(5)", "class Acc(NamedTuple):\n total: int = 0\n n: int = 0", "has (n), program has (total, n)"),
        (OF_N_AND_TOTAL, "Acc(5, 6)", OF_N, "snapshot has (n, total), program has (n)"),
        (OF_N_AND_TOTAL, "Acc(5, 6)", "class Acc(NamedTuple):\n total: int\n n: int", "program has (total, n)"),
        (OF_N, "[{'deep': (Acc(5),)}]", OF_N_AND_TOTAL, "snapshot has (n), program has (n, total)"),
        ("@dataclass\nclass Acc:\n n: int", "Acc(5)", "@dataclass\nclass Acc:\n n: int\n seen: int = 0", "(n, seen)"),
        ("@dataclass\nclass Acc:\n n: int", "Acc(5)", "@dataclass\nclass Acc:\n m: int", "has (n), program has (m)"),
        (
            "@dataclass(frozen=True, slots=True)\nclass Acc:\n a: int\n b: int",
            "Acc(1, 2)",
            "@dataclass(frozen=True, slots=True)\nclass Acc:\n b: int\n a: int",
            "snapshot has (a, b), program has (b, a)",
        ),
        (
            "@dataclass(slots=True)\nclass Acc:\n n: int",
            "Acc(5)",
            "@dataclass(frozen=True, slots=True)\nclass Acc:\n n: int",
            "snapshot has a slots dataclass (n), program has a frozen slots dataclass (n)",
        ),
        (OF_N, "Acc(5)", "@dataclass\nclass Acc:\n n: int", "has a NamedTuple (n), program has a dataclass (n)"),
        ("class Acc:\n pass", "Acc()", "@dataclass\nclass Acc:\n n: int", "has a class that declares no fields"),
        ("Acc = namedtuple('Acc', 'a b')", "Acc(1, 2)", "Acc = namedtuple('Acc', 'b a')", "has (a, b), program has (b"),
        (
            "class Acc(Enum):\n A = 1\n B = 2",
            "[Acc.A]",
            "class Acc(Enum):\n B = 1\n A = 2",
            "the members of Acc changed since snapshot 2: snapshot has (A=1, B=2), program has (B=1, A=2)",
        ),
        (
            "class Acc(IntEnum):\n A = 1\n B = 2",
            "{1: Acc.B}",
            "class Acc(IntEnum):\n A = 1",
            "snapshot has (A=1, B=2), program has (A=1)",
        ),
        (OF_N, "Acc(5)", "", "class Acc of module a_job_that_changes, a NamedTuple (n) in snapshot 2, can't be found"),
        (
            "T = TypeVar('T')\nclass Acc(NamedTuple, Generic[T]):\n a: T\n b: int",
            "Acc[str]('x', 1)",
            "T = TypeVar('T')\nclass Acc(NamedTuple, Generic[T]):\n b: int\n a: T",
            "program has (b, a)",
        ),
        (
            "class Base(NamedTuple):\n a: int\n b: int\nclass Acc(Base):\n pass",
            "Acc(1, 2)",
            "class Base(NamedTuple):\n b: int\n a: int\nclass Acc(Base):\n pass",
            "program has (b, a)",
        ),
        (
            "class Outer:\n class Acc(NamedTuple):\n  n: int",
            "Outer.Acc(1)",
            "class Outer:\n class Acc(NamedTuple):\n  n: int\n  m: int = 0",
            "the fields of Outer.Acc changed since snapshot 2",
        ),
        (
            "@dataclass\nclass Acc:\n n: int\n extra: InitVar[int] = 0",
            "Acc(1)",
            "@dataclass\nclass Acc:\n n: int\n extra: int = 0",
            "snapshot has (n), program has (n, extra)",
        ),
    ],
)
def test_a_changed_class_is_refused_with_both_shapes(before: str, state: str, after: str, both: str) -> None:
    backend = kept_of(before, state)
    module(after)
    said = refusal(backend)
    assert said.startswith("operator 'acc': ")
    assert both in said
    assert said.endswith("; increase version= and pass migrate=(old, version) -> state")


def test_the_refusal_names_the_place_of_the_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = kept_of(OF_N, "Acc(5)")
    del sys.modules[NAME]
    path = tmp_path / f"{NAME}.py"
    path.write_text(f"from typing import NamedTuple\n\n{OF_N_AND_TOTAL}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert refusal(backend) == (
        f"operator 'acc': the fields of Acc ({path}:3) changed since snapshot 2: snapshot has (n), program has "
        "(n, total); increase version= and pass migrate=(old, version) -> state"
    )


@pytest.mark.parametrize(
    ("before", "state", "after"),
    [
        (OF_N, "Acc(5)", "class Acc(NamedTuple):\n n: float = 1.5\n def more(self): return 1"),
        ("@dataclass\nclass Acc:\n a: int\n b: int", "Acc(1, 2)", "@dataclass\nclass Acc:\n b: int\n a: int"),
        ("class Acc(Enum):\n A = 1", "Acc.A", "class Acc(Enum):\n B = 0\n A = 1"),
        ("class Acc(Flag):\n A = 1\n B = 2", "Acc.A | Acc.B", "class Acc(Flag):\n A = 1\n B = 2\n C = 4"),
        ("class Acc:\n pass", "Acc()", "class Acc:\n def more(self): return 1"),
    ],
)
def test_equivalent_shape_is_no_change(before: str, state: str, after: str) -> None:
    backend = kept_of(before, state)
    held = module(after)
    ((_, found),) = opened(backend).items()
    assert isinstance(found, held.Acc)


def test_a_class_that_reads_its_old_states_itself_is_trusted() -> None:
    backend = kept_of("@dataclass\nclass Acc:\n n: int", "Acc(5)")
    after = "@dataclass\nclass Acc:\n n: int\n m: int\n def __setstate__(self, old): vars(self).update({'m': 9} | old)"
    held = module(after)
    assert opened(backend) == {"a": held.Acc(5, 9)}


def test_classes_of_increments_add_up_to_those_of_the_base() -> None:
    backend = kept_of(f"{OF_N}\nclass Later(NamedTuple):\n a: int\n b: int", "Acc(5)", growth=1e9)
    keep(backend, {"b": [sys.modules[NAME].Later(1, 2)]})
    keep(backend, {"c": 1})
    assert next(iter(reversed(list(snapshots(backend))))).kind == "increment"
    assert [shape.name for shape in manifest_of(backend).operators[-1].shapes] == [f"{NAME}:Acc", f"{NAME}:Later"]
    module(f"{OF_N}\nclass Later(NamedTuple):\n b: int\n a: int")
    assert "the fields of Later changed" in refusal(backend)
    module(f"{OF_N_AND_TOTAL}\nclass Later(NamedTuple):\n a: int\n b: int")
    assert "the fields of Acc changed" in refusal(backend)
    assert "the fields of Acc changed" in refusal(backend, recovery="previous")
    assert "the fields of Acc changed since snapshot 2" in refusal(backend, restore=2)
    assert "the fields of Acc changed" in refusal(backend, parallelism=3)


def test_a_base_forgets_the_classes_that_are_gone() -> None:
    backend = kept_of(OF_N, "Acc(5)", growth=1e-9)
    keep(backend, {"a": 1})
    keep(backend, {"a": 2})
    assert manifest_of(backend).operators[-1].shapes == ()
    module("")
    assert opened(backend) == {"a": 2}


def test_a_snapshot_of_plain_states_is_as_an_older_malflow_wrote_it() -> None:
    backend = kept_of("", "1")
    manifest_log = backend.manifest_log()
    newest = manifest_of(backend).seq
    data = manifest_log.store.get(f"m/{newest:020d}.json", 1 << 20)
    assert b'"format":1' in data
    assert b"shapes" not in data


# Migrated


@pytest.mark.fault("G6")
@pytest.mark.parametrize("codec", ["pickle", "msgpack"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_migration_gets_the_fields_of_a_changed_named_tuple(codec: str, workers: int) -> None:
    if codec == "msgpack":
        pytest.importorskip("msgpack")
    filesystem = in_memory()._filesystem

    def backend() -> FsspecBackend:
        made = MsgpackCodec({"acc": sys.modules[NAME].Acc}) if codec == "msgpack" else codec
        return FsspecBackend("memory://kept", filesystem=filesystem, codec=made)

    first = module(OF_N_AND_TOTAL)
    keep(backend(), {"a": first.Acc(5, 6), "b": [first.Acc(7, 8)]})
    second = module("class Acc(NamedTuple):\n total: int\n seen: int")
    seen: list[Any] = []

    def migrate(old: Any, version: int) -> Any:
        seen.append(version)
        (old,) = old if isinstance(old, list) else (old,)
        assert dict(old) == {"n": old.n, "total": old[1]} == {"n": old["n"], "total": old.total}
        assert tuple(old) == (old.n, old.total)
        return second.Acc(old.total, old.n)

    found = opened(backend(), version=2, migrate=migrate, parallelism=workers)
    assert found == {"a": second.Acc(6, 5), "b": second.Acc(8, 7)}
    assert seen == [1, 1]
    assert opened(backend(), version=2) == found
    assert fsck(backend()).problems == ()


@pytest.mark.fault("G7")
@pytest.mark.parametrize(
    ("before", "state"),
    [
        ("@dataclass\nclass Acc:\n a: int\n b: list", "Acc(1, [2])"),
        ("@dataclass(slots=True)\nclass Acc:\n a: int\n b: list", "Acc(1, [2])"),
        ("@dataclass(frozen=True)\nclass Acc:\n a: int\n b: list", "Acc(1, [2])"),
        ("@dataclass(frozen=True, slots=True)\nclass Acc:\n a: int\n b: list", "Acc(1, [2])"),
        ("class Acc:\n def __init__(self): self.a, self.b = 1, [2]", "Acc()"),
        ("class Acc:\n __slots__ = ('a', 'b')\n def __init__(self): self.a, self.b = 1, [2]", "Acc()"),
        ("import attrs\n@attrs.define\nclass Acc:\n a: int\n b: list", "Acc(1, [2])"),
        ("import attrs\n@attrs.define(slots=False)\nclass Acc:\n a: int\n b: list", "Acc(1, [2])"),
        ("import attrs\n@attrs.frozen\nclass Acc:\n a: int\n b: list", "Acc(1, [2])"),
        ("import pydantic\nclass Acc(pydantic.BaseModel):\n a: int\n b: Any", "Acc(a=1, b=[2])"),
        ("import msgspec\nclass Acc(msgspec.Struct):\n a: int\n b: list", "Acc(1, [2])"),
        ("import msgspec\nclass Acc(msgspec.Struct, kw_only=True):\n a: int\n b: list", "Acc(a=1, b=[2])"),
    ],
)
@pytest.mark.parametrize("after", [OF_N, ""])
@pytest.mark.slow
def test_a_migration_gets_the_fields_of_a_class_that_is_no_more(before: str, state: str, after: str) -> None:
    for library in ("attrs", "pydantic", "msgspec"):
        if f"import {library}" in before:
            pytest.importorskip(library)
    backend = kept_of(before, state)
    module(after)

    def migrate(old: Any, _version: int) -> Any:
        assert old == {"a": 1, "b": [2]}
        return [old["a"], old.b]

    if after or "def __init__" not in before:
        assert "increase version=" in refusal(backend)
    assert opened(backend, version=2, migrate=migrate) == {"a": [1, [2]]}


def test_a_migration_gets_instances_of_what_has_not_changed() -> None:
    inner = "@dataclass\nclass Inner:\n a: int"
    backend = kept_of(f"{inner}\n{OF_N}", "Acc(Inner(1))")
    held = module(f"{inner}\n{OF_N_AND_TOTAL}")
    found = opened(backend, version=2, migrate=lambda old, _: [old["n"], held.Acc(old.n, 2)])
    assert found == {"a": [held.Inner(1), held.Acc(held.Inner(1), 2)]}
    assert found["a"][0] is found["a"][1].n


def test_shared_object_of_a_state_is_one_object_in_a_migration() -> None:
    source = "@dataclass\nclass Acc:\n me: Any = None"
    held = module(source)
    state = held.Acc()
    state.me = [state]
    backend = in_memory()
    keep(backend, {"a": state})
    module(f"{source}\n other: int = 0")
    assert opened(backend, version=2, migrate=lambda old, _: [old.me[0] is old, old["me"] is old.me]) == {
        "a": [True, True]
    }


def test_old_records_are_elements_of_sets_and_keys_of_dicts() -> None:
    backend = kept_of(OF_N, "{Acc(1): {Acc(2), Acc(3)}}")
    module("")
    found = opened(backend, version=2, migrate=lambda old, _: next(k.n for k, v in old.items() if len(v) == 2))
    assert found == {"a": 1}


@pytest.mark.parametrize("wrapped", [lambda old: old, lambda old: {"deep": [old]}])
def test_a_migration_must_not_return_what_it_was_given(wrapped: Any) -> None:
    backend = kept_of(OF_N, "Acc(5)")
    module(OF_N_AND_TOTAL)
    with pytest.raises(OperatorError, match=r"migration of key 'a', state .*<old Acc: n=5>.* with an old Acc in it"):
        opened(backend, version=2, migrate=lambda old, _: wrapped(old))


def test_keys_of_a_changed_class_are_refused_with_words() -> None:
    held = module("class Key(NamedTuple):\n a: int\n b: int")
    backend = in_memory()
    keep(backend, {held.Key(1, 2): 3})
    module("class Key(NamedTuple):\n b: int\n a: int")
    assert "the fields of Key changed since snapshot 2" in refusal(backend)
    with pytest.raises(SnapshotError, match=r"class Key is used in keys.*convert states, not keys"):
        opened(backend, version=2, migrate=lambda old, _: old)


def test_states_are_renamed_and_migrated_at_once() -> None:
    backend = kept_of(OF_N, "Acc(5)")
    held = module(OF_N_AND_TOTAL)

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource([])).key_distribute("key", lambda m: m.value)
        migrate = lambda old, _: held.Acc(*old, 0)  # noqa: E731 - as users write it
        stream.stateful_map("new", lambda key, value, state: (value, state), version=2, migrate=migrate)

    SingleThreadRuntime(build, backend, renamed={"acc": "new"}, allow_dropped_state=["items"]).execute()
    assert kept_states(backend, "new") == {"a": held.Acc(5, 0)}
    assert [shape.fields for shape in manifest_of(backend).operators[-1].shapes] == [("n", "total")]


def test_going_back_migrates_too() -> None:
    backend = kept_of(OF_N, "Acc(5)", growth=1e9)
    keep(backend, {"a": sys.modules[NAME].Acc(6)})
    held = module(OF_N_AND_TOTAL)
    manifest_log = backend.manifest_log()
    assert manifest_log.find() is not None
    newest = manifest_of(backend)
    manifest_log.store.delete(newest.files[-1].name)
    with pytest.raises(SnapshotError, match="the fields of Acc changed since snapshot 2"):
        opened(backend, recovery="previous")
    found = opened(backend, recovery="previous", version=2, migrate=lambda old, _: held.Acc(old.n, 0))
    assert found == {"a": held.Acc(5, 0)}
    assert [shape.fields for shape in manifest_of(backend).operators[-1].shapes] == [("n", "total")]


def test_entries_of_a_ttl_map_are_migrated_in_their_map() -> None:
    backend = in_memory()

    def execute(**options: Any) -> None:
        held = sys.modules[NAME]

        def remember(_key: Any, value: Any, timestamp: int, seen: Any) -> tuple[Any, Any]:
            seen.insert("acc", held.Acc(value), timestamp + 10)
            return None, seen

        def build(provider: StreamProvider) -> None:
            stream = provider.new_stream().source("n", SingleIteratorSource([] if options else [5]))
            timed, _ = stream.assign_timestamps("t", lambda m: 1).generate_epochs("e", lambda m, _: 0)
            timed.key_distribute("k", lambda m: "a").ttl_map("acc", remember, **options)

        SingleThreadRuntime(build, backend).execute()

    def migrate(old: Any, _version: int) -> Any:
        for name, (value, expiry) in list(old.__getstate__().items()):
            old.insert(name, sys.modules[NAME].Acc(value["n"], 9), expiry)
        return old

    module(OF_N)
    execute()
    held = module(OF_N_AND_TOTAL)
    with pytest.raises(SnapshotError, match="operator 'acc': the fields of Acc changed"):
        execute()
    execute(version=2, migrate=migrate)
    assert kept_states(backend, "acc")["a"].get("acc") == held.Acc(5, 9)


# With msgpack


def packed(**types: Any) -> MsgpackCodec:
    pytest.importorskip("msgpack")
    return MsgpackCodec(types)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ("@dataclass\nclass Acc:\n n: int", "snapshot has (n, m), program has (n)"),
        ("@dataclass\nclass Acc:\n n: int\n m: int\n o: int", "program has (n, m, o); a field may be added if it has"),
        ("class Acc(Enum):\n A = 1", "snapshot has a dataclass (n, m), program has an enum (A=1)"),
        ("", "'acc', a dataclass (n, m) in snapshot 2, is not registered; register its class"),
    ],
)
def test_a_registered_class_that_does_not_fit_is_refused(after: str, said: str) -> None:
    first = module("@dataclass\nclass Acc:\n n: int\n m: int")
    backend = in_memory(codec=packed(acc=first.Acc))
    keep(backend, {"a": [first.Acc(1, 2)]})
    second = module(after)
    backend._codec = packed(**({"acc": second.Acc} if after else {}))
    assert said in refusal(backend)
    found = opened(backend, version=2, migrate=lambda old, _: {**old[0]})
    assert found == {"a": {"n": 1, "m": 2}}


@pytest.mark.parametrize("after", ["@dataclass\nclass New:\n m: int\n n: int\n o: int = 7", OF_N_AND_TOTAL])
def test_a_registered_class_may_be_moved_reordered_and_given_defaults(after: str) -> None:
    first = module(
        "@dataclass\nclass Acc:\n n: int\n total: int"
        if "total" in after
        else "class Acc(NamedTuple):\n n: int\n m: int"
    )
    backend = in_memory(codec=packed(acc=first.Acc))
    keep(backend, {"a": first.Acc(1, 2)})
    second = module(after)
    backend._codec = packed(acc=second.New if "New" in after else second.Acc)
    (found,) = opened(backend).values()
    assert found == (second.New(m=2, n=1) if "New" in after else second.Acc(1, 2))


# Sources and sinks


class Places(StatefulSourceImpl[Any, Any, Any, Any]):
    """A source with positions of a class of the program's."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def list_parts(self) -> list[str]:
        return ["one"]

    def build_part(self, part: str, state: Any) -> Place:
        return Place(self.kind, state or self.kind(0))


class Place(StatefulSourcePartition[Any, Any, Any]):
    def __init__(self, kind: Any, at: Any) -> None:
        self.kind, self.at = kind, at

    def poll(self) -> tuple[Any, Any]:
        self.at = self.kind(self.at[0] + 1)
        return self.at, self.at[0]

    def is_finished(self) -> bool:
        return bool(self.at[0] >= 3)

    def snapshot(self) -> Any:
        return [self.at]


class Parts:
    """A sink in parts with states of a class of the program's."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def assign_part(self, msg: Any) -> str:
        return "one"

    def build_part(self, part: str, state: Any) -> Parts:
        return self

    def sink(self, msg: Any) -> None:
        """Write nothing."""

    def snapshot(self) -> Any:
        return {"deep": self.kind(1)}


@pytest.mark.fault("G6")
@pytest.mark.parametrize("kind", ["source", "sink"])
def test_the_changed_states_of_sources_and_sinks_are_refused(kind: str) -> None:
    backend = in_memory()

    def execute(**options: Any) -> None:
        held = sys.modules[NAME].Acc

        def build(provider: StreamProvider) -> None:
            source: Any = StatefulSource(Places(held)) if kind == "source" else ScriptedSource([1])
            sink: Any = StatefulSink(Parts(held)) if kind == "sink" else VecSink()
            provider.new_stream().source("in" if kind == "source" else "numbers", source).sink(
                "in" if kind == "sink" else "out", sink
            )

        SingleThreadRuntime(build, backend, **options).execute()

    module(OF_N)
    execute()
    module("class Acc(NamedTuple):\n n: int\n more: int = 0")
    with pytest.raises(SnapshotError) as raised:
        execute()
    assert str(raised.value) == (
        "operator 'in': the fields of Acc changed since snapshot 2: snapshot has (n), program has (n, more); states of "
        f"kind '{kind}' can't be migrated: leave the class as it was (unless it is a tuple, it may have a __setstate__ "
        "that accepts its old fields); or rename 'in' and pass allow_dropped_state=['in'] to start it with empty state"
    )


# Classes of the script


def test_states_of_classes_of_the_script_are_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "Acc", type("Acc", (), {"__module__": "__main__"}), raising=False)
    caplog.set_level(logging.WARNING)
    backend = in_memory()

    def build(provider: StreamProvider) -> None:
        stream = (
            provider.new_stream()
            .source("n", ScriptedSource([1, PAUSE, 2, PAUSE, 3]))
            .key_distribute("k", lambda m: m.value)
        )
        stream.stateful_map("acc", lambda key, value, state: (value, main.Acc()))

    SingleThreadRuntime(build, backend, snapshots=MOMENT).execute()
    assert len(list(snapshots(backend))) > 1
    (record,) = [record for record in caplog.records if "defined in the script" in record.message]
    assert "operator 'acc' keeps objects of class Acc" in record.message
    assert "define it in a module that both import, or use codec=MsgpackCodec({'name': Acc})" in record.message


# What an older malflow wrote


class Old(PickleCodec):
    """Pickles as they were written before snapshots knew classes."""

    def noting(self, kinds: set[type]) -> PickleCodec:
        return self


def kept_before(source: str, state: str) -> FsspecBackend:
    backend = in_memory(codec=Old())
    keep(backend, {"a": eval(state, vars(module(source)))})  # noqa: S307 - the tests' own
    assert manifest_of(backend).operators[-1].shapes == ()
    backend._codec = PickleCodec()
    return backend


def test_old_snapshots_are_gone_on_from_and_know_classes_then() -> None:
    backend = kept_before(OF_N, "Acc(5)")
    keep(backend, {"b": sys.modules[NAME].Acc(6)})
    assert [shape.fields for shape in manifest_of(backend).operators[-1].shapes] == [("n",)]
    module(OF_N_AND_TOTAL)
    assert "the fields of Acc changed since snapshot 4: snapshot has (n), program has (n, total)" in refusal(backend)


def test_named_tuples_of_old_snapshots_are_migrated_as_tuples() -> None:
    backend = kept_before(OF_N, "[Acc(5)]")
    held = module(OF_N_AND_TOTAL)
    assert "names and fields; otherwise increase version= and pass migrate=" in refusal(backend)
    assert opened(backend, version=2, migrate=lambda old, _: held.Acc(old[0][0], 100)) == {"a": held.Acc(5, 100)}


@pytest.mark.parametrize(
    ("before", "state", "given"),
    [
        (
            "class Base(NamedTuple):\n a: int\n b: int\n"
            "class Acc(Base):\n def __new__(cls, b): return super().__new__(cls, 0, b)\n"
            " def __getnewargs__(self): return (self.b,)",
            "Acc(7)",
            {"args[0]": 7},
        ),
        ("@dataclass\nclass Acc:\n a: int\n def __reduce__(self): return Acc, (self.a,)", "Acc(7)", {"args[0]": 7}),
        ("@dataclass\nclass Acc:\n a: int\n def __getstate__(self): return {'x': self.a}", "Acc(7)", {"x": 7}),
        ("class Acc(dict): pass", "Acc(a=7)", {"items": {"a": 7}}),
        ("class Acc(list): pass", "Acc([7])", {"items": [7]}),
        ("class Acc(int): pass", "Acc(7)", {"args[0]": 7}),
        ("class Acc(Enum):\n A = 7", "Acc.A", {"value": 7}),
    ],
)
def test_class_with_its_own_pickling_has_no_field_names(before: str, state: str, given: Any) -> None:
    backend = kept_of(before, state)
    module("")
    assert opened(backend, version=2, migrate=lambda old, _: dict(old)) == {"a": given}
