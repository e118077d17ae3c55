"""Ask and stop a run through its socket: a line of JSON there, a line back, from any language.

docs/operating.md has the questions.
"""

import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.monitor import Monitor
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource


def folder() -> Path:
    """Return the folder of the runs of this user."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    return Path(own, "malflow") if own else Path(tempfile.gettempdir(), f"malflow-{os.getuid()}")


def ask(run: str, **request: Any) -> Any:
    """Return the answer of a run."""
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(str(folder() / f"{run}.sock"))
        end.sendall(json.dumps({"malflow": 1, **request}).encode() + b"\n")
        return json.loads(b"".join(iter(lambda: end.recv(65536), b"")))


def endless() -> Iterator[int]:
    number = 0
    while True:
        time.sleep(0.001)
        yield (number := number + 1)


def main() -> None:
    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", SingleIteratorSource(endless())).sink("seen", VecSink())

    before = {it.stem for it in folder().glob("*.sock")}
    handle = SingleThreadRuntime(build, listeners=[Monitor()]).start()
    while not (found := {it.stem for it in folder().glob("*.sock")} - before) or not handle.progress.tick:
        time.sleep(0.01)
    (run,) = found
    progress = ask(run, do="progress")
    print(progress["job"], progress["runtime"], [it["name"] for it in progress["operators"]])
    print(ask(run, do="stop")["kind"])
    handle.await_termination()
    print(json.loads((folder() / f"{run}.json").read_text())["status"])


if __name__ == "__main__":
    main()
