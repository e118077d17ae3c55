"""Check every snapshot that a test wrote on this machine, once the test has passed: by `fsck`, and by a start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from malflow.snapshot import FsspecBackend, fsck
from malflow.snapshot.persistence import RestoreOptions
from malflow.states.kinds import StateSpec
from malflow.store.opening import is_private

MARKER = "damages_snapshots"
_MOST = 20
"""Jobs of one test to check, the last ones: property tests have thousands."""


class _Opened:
    """The jobs that were opened, each with what opened it last."""

    def __init__(self) -> None:
        self.jobs: dict[Any, tuple[FsspecBackend, Sequence[StateSpec], RestoreOptions]] = {}

    def note(self, backend: FsspecBackend, states: Sequence[StateSpec], start: RestoreOptions) -> None:
        if type(backend) is not FsspecBackend or backend.own_store is not None:
            return
        if is_private(backend._url, backend._filesystem):
            key = backend._url, backend.job, id(backend._filesystem)
            self.jobs.pop(key, None)
            self.jobs[key] = backend, states, start
            if len(self.jobs) > _MOST:
                del self.jobs[next(iter(self.jobs))]

    def check(self) -> None:
        for backend, states, start in self.jobs.values():
            assert fsck(backend).problems == (), f"{backend!r} has snapshots that can't be restored"
            session, _ = backend.open(states, replace(start, restore="latest", recovery="strict", in_store=False))
            session.close(wait=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Check what a test wrote that does no damage on purpose."""
    opened = _Opened()
    real = FsspecBackend.open

    def noted(backend: FsspecBackend, states: Sequence[StateSpec], start: RestoreOptions) -> Any:
        session = real(backend, states, start)
        opened.note(backend, states, start)
        return session

    FsspecBackend.open = noted  # type: ignore[assignment, method-assign] # nothing else sees all backends of a test
    try:
        outcome = yield
    finally:
        FsspecBackend.open = real  # type: ignore[method-assign]
    if item.get_closest_marker(MARKER) is None:
        opened.check()
    return outcome
