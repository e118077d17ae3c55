"""The kinds of states: their names in manifests, and the operations that they allow."""

from __future__ import annotations

import pytest

from malflow.states.kinds import Movement, StateKind


def test_words_in_manifests_stay() -> None:
    words = {"source", "stateful_map", "stateful_op", "ttl_map", "epochs", "frontier", "sink"}
    words |= {"aggregate", "window", "rollup", "session", "count_window"}
    words |= {"batch", "timers", "distinct", "changes", "throttle", "sort", "join", "match", "table", "letters"}
    words |= {"broadcast"}
    assert {kind.word for kind in StateKind} == words
    assert all(StateKind.of(kind.word) is kind for kind in StateKind)
    assert StateKind.of("of a newer version") is None, "a newer version may have more"


@pytest.mark.parametrize("kind", StateKind, ids=lambda kind: kind.word)
def test_only_states_of_users_migrate(kind: StateKind) -> None:
    assert kind.migrates == (kind.word not in {"source", "epochs", "frontier", "sink", "letters"})
    assert kind.is_by_key == (kind.movement in (Movement.BY_KEY, Movement.BY_SLOT, Movement.BY_ENTRY))
    assert kind.migrates == (kind.is_by_key or kind.movement is Movement.EVERYWHERE)


def test_only_frontiers_may_be_lost() -> None:
    assert [kind for kind in StateKind if kind.may_be_lost] == [StateKind.FRONTIER]
