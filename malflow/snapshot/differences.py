"""The differences between the states of an operator in two snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from malflow.errors import SnapshotError
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.reading import opened
from malflow.snapshot.worker_states import WorkerStates
from malflow.words import plural

__all__ = ["ABSENT", "StateChange", "diff_state"]


class _Absent:
    """The type of `ABSENT`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        """Pickle by name. Each process thus has one `ABSENT`."""
        return "ABSENT"


ABSENT: Final = _Absent()
"""In a `StateChange`: the key has no state. It is false, as None is, which may be a state."""


class StateChange(NamedTuple):
    """The state of a key in two snapshots. The two states differ.

    Attributes:
        key: the key.
        before: its state in the first; `ABSENT` if it had none.
        after: its state in the second; `ABSENT` if it had none.
    """

    key: Any
    before: Any
    after: Any


def diff_state(
    backend: FsspecBackend,
    operator: str,
    before: Literal["latest"] | int | datetime,
    after: Literal["latest"] | int | datetime = "latest",
) -> Iterator[StateChange]:
    """Yield the keys of an operator with states that differ between two snapshots, with both states.

    States are equal if ``==`` says so, or if they are serialised to the same bytes. For each worker, keys of the second
    snapshot come first, in its order, and then those that it lacks. In memory are the states of one worker of each
    snapshot; but if the number of workers or the partitioner differs, all workers of one snapshot are read again for
    each worker of the other.

    Args:
        backend: the backend, configured as for a run.
        operator: the name of the operator, or of a hidden state.
        before: the first snapshot: ``"latest"``, an id, or a datetime with a time zone.
        after: the second one.

    Raises:
        GraphError: if an argument is not valid.
        SnapshotError: if a snapshot or the operator does not exist or can't be read, or the states can't be compared.
    """
    old, new = opened(backend, operator, before), opened(backend, operator, after)
    _check(old, new)
    is_aligned = old.is_by_worker or (_placement(old) == _placement(new))
    return _aligned(old, new, backend.codec) if is_aligned else _crossed(old, new, backend.codec)


def _aligned(old: WorkerStates, new: WorkerStates, codec: Codec) -> Iterator[StateChange]:
    """Compare worker by worker, as each has the same keys in both snapshots."""
    for worker in sorted({*old.workers, *new.workers}):
        before = old.states(worker)
        yield from _changed(before, new.states(worker), codec)
        yield from _gone(before)


def _crossed(old: WorkerStates, new: WorkerStates, codec: Codec) -> Iterator[StateChange]:
    """Compare each worker with all workers of the other snapshot."""
    for worker in new.workers:
        after, before = new.states(worker), {}
        for other in old.workers:
            before.update(_common(old.states(other), after))
        yield from _changed(before, after, codec)
    for other in old.workers:
        before = old.states(other)
        for worker in new.workers:
            for key in _common(before, new.states(worker)):
                del before[key]
        yield from _gone(before)


def _changed(before: dict[Any, Any], after: dict[Any, Any], codec: Codec) -> Iterator[StateChange]:
    """Yield new and changed keys; remove from `before` the keys that are in both."""
    for key, state in after.items():
        was = before.pop(key, ABSENT)
        if was is ABSENT or not _is_same(was, state, codec):
            yield StateChange(key, was, state)


def _gone(before: dict[Any, Any]) -> Iterator[StateChange]:
    return (StateChange(key, state, ABSENT) for key, state in before.items())


def _common(states: dict[Any, Any], others: dict[Any, Any]) -> dict[Any, Any]:
    return {key: state for key, state in states.items() if key in others}


def _is_same(was: Any, state: Any, codec: Codec) -> bool:
    try:
        if was == state:
            return True
    except Exception:  # noqa: BLE001, S110 - an __eq__ of the user's, or one without a truth value, such as numpy's
        pass
    return codec.dumps(was) == codec.dumps(state)


def _placement(kept: WorkerStates) -> tuple[int, str | None]:
    return kept.manifest.parallelism, kept.entry.placement


def _check(old: WorkerStates, new: WorkerStates) -> None:
    """Check that two states have keys of the same form.

    Raises:
        SnapshotError: if they have not, or keys of ``key_local`` have moved.
    """
    one, two = old.entry, new.entry
    at = [f"snapshot {it.manifest.snapshot}" for it in (old, new)]
    if (one.kind, one.panes) != (two.kind, two.panes):
        facts = [f"a {it.kind}" + (f" of {it.definition}" if it.definition else "") for it in (one, two)]
        raise SnapshotError(
            f"operator '{two.name}' is {facts[0]} in {at[0]} and {facts[1]} in {at[1]}, whose states can't be compared"
        )
    is_by_key = old.kind is not None and old.kind.is_by_key
    if one.placement is None and is_by_key and old.manifest.parallelism != new.manifest.parallelism:
        raise SnapshotError(
            f"operator '{two.name}' was kept under key_local() by {plural(old.manifest.parallelism, 'worker')} in "
            f"{at[0]} and by {new.manifest.parallelism} in {at[1]}, whose states can't be compared"
        )
