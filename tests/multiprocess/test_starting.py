"""Many processes for an ordinary user, who may have few open files; root has no such limit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.multiprocess.groups import DEADLINE, ROOT

pytestmark = pytest.mark.slow

MANY = """
import os, resource, socket, sys, time
from malflow.errors import RunFailed
from malflow.runtime.processes.links import Link, receive_link, wait_for
from malflow.runtime.processes.starting import start_all

COUNT, FILES, NOBODY, dying = 16, 100, 65_534, int(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
launched = 0

class Forked:
    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self):
        os.kill(self.pid, 9)

def launch(descriptors, peers):
    global launched
    number, launched = launched, launched + 1
    pid = os.fork()
    if pid:
        return Forked(pid)
    time.sleep(0.3)  # as a new interpreter needs before it receives anything
    if number == dying:
        os._exit(3)
    end = socket.socket(fileno=descriptors[0])
    links = [receive_link(end) for _ in range(peers)]
    for link in links:
        link.send(bytes([number]))
    wait_for(links, lambda: all(link.arrived for link in links))
    control = Link(end)
    control.send(bytes(link.arrived.popleft()[0] for link in links))
    wait_for([control], lambda: not control.is_sending)
    os._exit(0)

assert COUNT * (COUNT - 1) > 2 * FILES
try:
    processes, life = start_all(COUNT, launch)
except RunFailed as error:
    print(error)
    sys.exit()
for it in processes:
    wait_for([it.link], lambda: it.link.arrived)
    assert [*it.link.arrived.popleft()] == [number for number in range(COUNT) if number != it.number]
    it.close()
print("connected")
"""


def started(dying: int) -> subprocess.CompletedProcess[str]:
    """Start sixteen processes as an ordinary user with a hundred files; one of them may die at its start."""
    return subprocess.run(
        [sys.executable, "-c", MANY, str(dying)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=DEADLINE,
    )


def test_many_processes_are_connected_with_few_open_files() -> None:
    done = started(-1)
    assert (done.stdout, done.returncode) == ("connected\n", 0), done.stderr


def test_a_process_that_ends_while_others_are_started_is_named() -> None:
    done = started(3)
    assert done.stdout.startswith("worker process "), done.stderr
    assert done.stdout.endswith(" has exited with code 3 while it was started\n")
