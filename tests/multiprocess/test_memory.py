"""User code in a worker process needs more memory than there is."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError
from malflow.events import Restarted
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from tests.kit.waiting import wait_until
from tests.multiprocess.groups import DEADLINE, assert_totals, group
from tests.multiprocess.programs.totals import Options, leak
from tests.multiprocess.runs import A_METHOD, Heard, processes, scripted, summed

pytestmark = pytest.mark.nightly

LIMIT = 1 << 30
ROOT = Path("/sys/fs/cgroup")
INTO_GROUP = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
"""A program of the shell that moves itself into a control group, and becomes another program."""


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """Return a new control group of Linux that limits the memory of its processes."""
    name = f"malflow-tests-{os.getpid()}"
    first, second = ROOT / "memory" / name, ROOT / name
    made, limit = (first, "memory.limit_in_bytes") if first.parent.exists() else (second, "memory.max")
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        try:
            (made / limit).write_text(str(LIMIT))
        except OSError as error:
            pytest.skip(f"no control group can limit memory: {error}")
        with suppress(OSError):  # there may be no swap
            (made / "memory.swap.max").write_text("0")
        yield made
    finally:
        wait_until(lambda: not (made / "cgroup.procs").read_text(), DEADLINE)
        made.rmdir()


@A_METHOD
@pytest.mark.fault("H6")
def test_a_worker_that_uses_up_the_memory_is_killed_and_restarted(
    tmp_path: Path, memory_group: Path, method: str
) -> None:
    under = ["/bin/sh", "-c", INTO_GROUP, str(memory_group)]
    with group(tmp_path, Options(at=35, do="leak", start_method=method), under=under) as program:
        program.end()
        assert program.said == ["busy", "restarted 1", "ended 1"]
        assert "was killed by SIGKILL" in program.errors
        assert "memory ran out" in program.errors
    assert_totals(tmp_path)


@A_METHOD
@pytest.mark.fault("H6")
def test_a_worker_without_more_memory_names_the_operator(tmp_path: Path, method: str) -> None:
    def hook(msg: Any, _ctx: Any) -> None:
        if msg.value == 5:
            size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + LIMIT, size + LIMIT))
            leak()

    heard, backend = Heard(), FsspecBackend(str(tmp_path / "state"))
    with pytest.raises(OperatorError, match=r"operator 'hook' failed at key 2, value 5, .*MemoryError") as raised:
        processes(
            summed(scripted(range(10)), hook, VecSink()), backend, start_method=method, listeners=[heard]
        ).execute()
    assert raised.value.operator == "hook"
    assert isinstance(raised.value.__cause__, MemoryError)
    assert heard.of(Restarted) == []
