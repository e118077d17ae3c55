"""States of older versions, and the results of their migration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from malflow import ExpireMap, GraphError, OperatorError, SnapshotError
from malflow.engine.plan import Program
from malflow.sources import SingleIteratorSource
from malflow.testing.driven import DrivenRun
from tests.kit.driving import Store, compiled

Build = Callable[[Any], Any]


def program_of(build: Build, values: range = range(6)) -> Program:
    return compiled(
        lambda provider: build(
            provider.new_stream()
            .source("s", SingleIteratorSource(values))
            .key_distribute("key", lambda msg: msg.value % 3)
        )
    )


def count(key: Any, value: Any, state: Any) -> tuple[Any, Any]:
    return value, (state or 0) + 1


def describe(key: Any, value: Any, state: Any) -> tuple[Any, Any]:
    return value, f"{state or 'new'}+"


def kept(build: Build, parallelism: int = 1) -> Store:
    """Run to the end, and keep the state."""
    program, store = program_of(build), Store()
    run = store.restore(program, parallelism)
    while not run.is_finished:
        run.tick()
    store.commit(run, program)
    run.close()
    return store


VERSION_2: Build = lambda keyed: keyed.stateful_map("op", count, version=2)  # noqa: E731 - one of several alike


@pytest.mark.fault("G6")
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_each_state_goes_through_migrate_and_none_drops_the_key(parallelism: int) -> None:
    store = kept(VERSION_2, 2)
    asked: list[Any] = []

    def migrate(state: int, version: int) -> str | None:
        asked.append((state, version))
        return f"was {state}" if len(asked) < 3 else None

    program = program_of(lambda keyed: keyed.stateful_map("op", describe, version=3, migrate=migrate), range(3))
    run = store.restore(program, parallelism)
    assert asked == [(2, 2)] * 3
    run.tick()
    deltas = {(worker, name): delta for worker, name, delta, _ in run.deltas()}
    assert all(delta.whole for (_, name), delta in deltas.items() if name == "op")
    assert any(delta.whole for (_, name), delta in deltas.items() if name != "op") == (parallelism != 2)
    while not run.is_finished:
        run.tick()
    held = [state for worker in run._workers for state in worker.states.live().get("op", {}).values()]
    assert sorted(held) == ["new+", "was 2+", "was 2+"]
    run.close()


def test_an_older_version_needs_a_migration() -> None:
    with pytest.raises(
        SnapshotError, match=r"operator 'op' has version 3, but its states in the snapshot have version 2; pass migr"
    ):
        kept(VERSION_2).restore(program_of(lambda keyed: keyed.stateful_map("op", count, version=3)), 1)


def test_a_newer_version_is_refused() -> None:
    migrate = pytest.fail
    for version in (1, None):
        more = {} if version is None else {"version": version, "migrate": migrate}
        with pytest.raises(
            SnapshotError, match=r"operator 'op' has states of version 2 in the snapshot.*only version 1"
        ):
            kept(VERSION_2).restore(program_of(lambda keyed, more=more: keyed.stateful_map("op", count, **more)), 1)


def test_the_same_version_is_not_migrated() -> None:
    store = kept(VERSION_2)
    program = program_of(lambda keyed: keyed.stateful_map("op", count, version=2, migrate=pytest.fail), range(0))
    run = store.restore(program, 1)
    run.tick()
    assert not any(delta.whole for _, name, delta, _ in run.deltas() if name == "op")
    run.close()


def test_a_state_of_no_known_version_has_the_first() -> None:
    program = program_of(lambda keyed: keyed.stateful_map("op", count, version=2, migrate=lambda state, v: (v, state)))
    run = DrivenRun(program, parallelism=1, tracked=True)
    run.load_snapshot(4, 1, {"op": {0: {0: 7}}}, {}, {})
    assert run.ticks.number == 4
    assert next(delta.changed for _, name, delta, _ in run.deltas() if name == "op") == {0: (1, 7)}


def test_a_migration_that_fails_is_named_with_key_state_and_place() -> None:
    def migrate(state: int, version: int) -> Any:
        raise KeyError("form")

    with pytest.raises(OperatorError) as failure:
        kept(VERSION_2).restore(
            program_of(lambda keyed: keyed.stateful_map("op", count, version=5, migrate=migrate)), 1
        )
    message = str(failure.value)
    assert message.startswith(
        "operator 'op' failed at the migration of key 0, state 2, from version 2: KeyError: 'form'; in "
    )
    assert f"migrate ({__file__}:" in message
    assert isinstance(failure.value.__cause__, KeyError)


class Count:
    def on_data(self, msg: Any, state: Any, output: Any) -> int:
        return (state or 0) + 1


def fill(key: Any, value: Any, timestamp: int, entries: ExpireMap[Any, Any, Any]) -> Any:
    entries.insert(value, timestamp, timestamp + 100)
    return value, entries


def test_every_stateful_operator_has_a_version() -> None:
    def first(keyed: Any) -> None:
        keyed.stateful_op("op", Count())
        keyed.ttl_map("ttl", fill)

    def renew(entries: ExpireMap[Any, Any, Any], version: int) -> Any:
        new: ExpireMap[Any, Any, Any] = ExpireMap()
        new.insert("entries", len(entries), 50)
        return new

    def second(keyed: Any) -> None:
        keyed.stateful_op("op", Count(), version=2, migrate=lambda state, _: -state)
        keyed.ttl_map("ttl", fill, version=2, migrate=renew)

    run = kept(first, 2).restore(program_of(second, range(0)), 3)
    held: dict[str, dict[Any, Any]] = {"op": {}, "ttl": {}}
    for _, name, delta, _ in run.deltas():
        held.get(name, {}).update(delta.changed)
    assert held["op"] == {0: -2, 1: -2, 2: -2}
    assert [(list(entries), entries.get("entries")) for entries in held["ttl"].values()] == [(["entries"], 2)] * 3
    run.close()


def test_a_ttl_map_is_migrated_to_an_expire_map() -> None:
    with pytest.raises(OperatorError, match=r"operator 'ttl' failed.*it must return an ExpireMap or None; got \{\}"):
        kept(lambda keyed: keyed.ttl_map("ttl", fill)).restore(
            program_of(lambda keyed: keyed.ttl_map("ttl", fill, version=2, migrate=lambda entries, version: {})), 1
        )


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "2", None])
@pytest.mark.parametrize(
    "build",
    [
        lambda keyed, **more: keyed.stateful_map("op", count, **more),
        lambda keyed, **more: keyed.stateful_op("op", Count(), **more),
        lambda keyed, **more: keyed.ttl_map("op", fill, **more),
    ],
)
def test_a_version_is_a_whole_number_of_one_or_more(build: Any, version: Any) -> None:
    with pytest.raises(GraphError, match=r"operator 'op' version must be a whole number, at least 1; got "):
        program_of(lambda keyed: build(keyed, version=version))
    with pytest.raises(GraphError, match=r"operator 'op' migrate must be a plain function; got 7"):
        program_of(lambda keyed: build(keyed, migrate=7))
