"""The process that forks the worker processes of all runs of a program."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from tests.multiprocess.groups import ROOT, started
from tests.multiprocess.runs import BOTH, METHODS, run_map

pytestmark = pytest.mark.slow

KILLED_BETWEEN = """
import os, signal, sys
from pathlib import Path
from tests.multiprocess.programs.starts import children
from tests.multiprocess.runs import run_map

def servers():
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_server(pid)]

def is_server(pid):
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent == os.getpid() and "fork_server" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False

print(run_map(lambda value: value + 1, [1]))
[server] = servers()
os.kill(server, signal.SIGKILL)
os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
print(run_map(lambda value: value + 1, [2]))
print(len(servers()), server in servers())
"""


def test_a_server_that_was_killed_between_two_runs_is_replaced(tmp_path: Path) -> None:
    with started([sys.executable, "-c", KILLED_BETWEEN], tmp_path, PYTHONPATH=str(ROOT)) as program:
        program.end()
        assert program.said == ["[2]", "[3]", "1 False"]


def test_a_large_environment_reaches_worker_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        monkeypatch.setenv(f"LARGE_{number}", "x" * 100_000)
    assert run_map(lambda number: len(os.environ[f"LARGE_{number}"]), range(4)) == [100_000] * 4


MANY_FILES = """
import os, resource, sys
from tests.multiprocess.runs import run_map

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
print(run_map(lambda value: value + 1, [1], start_method=sys.argv[1]))
"""


@METHODS
@pytest.mark.nightly
def test_a_program_with_many_open_files_can_run(tmp_path: Path, method: str) -> None:
    with started([sys.executable, "-c", MANY_FILES, method], tmp_path, PYTHONPATH=str(ROOT)) as program:
        program.end()
        assert (program.said, program.errors) == (["[2]"], "")


def test_processes_have_the_environment_and_folder_of_their_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("NAME_OF_RUN", name)
        monkeypatch.syspath_prepend(str(tmp_path / name))
        [found] = run_map(lambda _: json.dumps([os.environ["NAME_OF_RUN"], str(Path.cwd()), sys.path[0]]))
        assert json.loads(found) == [name, *[str(tmp_path / name)] * 2]


def test_runs_in_several_threads_share_the_server() -> None:
    found: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda at=at: found.append(run_map(lambda value: value + 1, range(at, at + 100))))
        for at in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [list(range(at + 1, at + 101)) for at in range(4)]


def test_signals_are_those_of_python_in_programs_of_users() -> None:
    def asked(_value: int) -> str:
        import subprocess  # noqa: PLC0415 - in the worker process

        program = (
            "import signal; print([signal.getsignal(it).name for it in (signal.SIGTERM, signal.SIGCHLD)], "
            "signal.pthread_sigmask(signal.SIG_BLOCK, []))"
        )
        return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    for method in BOTH:
        assert run_map(asked, start_method=method) == ["['SIG_DFL', 'SIG_DFL'] set()\n"]
