"""A script with random dataflows that read files and write into a database, which refuses some rows.

``python -m tests.campaign.drawn_script FOLDER RUNTIME WORKERS PROCESSES MILLISECONDS [watch | check]`` runs the job of
a folder, or checks what it has come to. RUNTIME is ``thread``, ``spawn`` or ``forkserver``, and a snapshot is due after
so many milliseconds. With ``watch`` the run waits for new lines and files. The classes of keys and states are those of
the script.
"""

from __future__ import annotations

import ast
import pickle
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from malflow import DataMessage, MultiProcessRuntime, NoKey, OnError, RestartPolicy, SingleThreadRuntime
from malflow.connectors.sql import SqlSink
from malflow.failures import Budget
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.sources import StatefulSource, TextFileSource
from tests.campaign.cases import Difference
from tests.campaign.comparing import Job, shown
from tests.campaign.endpoints import paced_source
from tests.campaign.flows import Flow
from tests.properties.agreement import typed
from tests.properties.building import Run
from tests.properties.functions import is_refused
from tests.properties.lifting import counts_epochs, lifted
from tests.properties.specs import REFUSES, Step

__all__ = ["STATE", "folder_of_logs", "is_in_files", "save"]

SEARCH = timedelta(milliseconds=50)
"""How often new files are looked for."""

STATE = "state"
"""The folder of the snapshots."""


def save(folder: Path, flows: Sequence[Flow], seed: int, longest: int) -> None:
    """Prepare a job."""
    Path(folder, "job").write_bytes(pickle.dumps((flows, seed, longest)))
    with sqlite3.connect(_database_of(folder)) as database:
        database.execute("create table rows (sink text, row blob, refused int check (refused = 0))")
    database.close()


def _database_of(folder: Path) -> Path:
    """Return the file of the database."""
    return folder / "target.db"


def is_in_files(step: Step) -> bool:
    """Whether the records of a source are in files."""
    return bool(step.arg[0].key is NoKey)


def folder_of_logs(folder: Path, step: Step) -> Path:
    """Return the folder with the files of a source."""
    return folder / "logs" / step.name.replace(": ", "-")


class Lines(TextFileSource):
    """Lines of files, without their names as keys."""

    keyed = False  # type: ignore[misc] # a record here has no key


class Decoding:
    """Turns a line into a record with its own time."""

    def on_data(self, msg: Any, output: Any) -> None:
        _, value, timestamp = ast.literal_eval(msg.value)
        output.send(DataMessage(msg.key, value, timestamp))


class ScriptJob(Job):
    """The job of a folder.

    Args:
        folder: the folder.
        watches: whether its sources wait for new lines and files.
    """

    def __init__(self, folder: Path, *, watches: bool = False) -> None:
        flows, seed, longest = pickle.loads(Path(folder, "job").read_bytes())
        super().__init__(flows, seed, folder, longest)
        self._watches = watches

    def new_run(self) -> Run:
        return Run(policy=OnError("dead_letter", budget=Budget(1.0)), decode=self._decode)

    def _source(self, step: Step) -> Any:
        if not is_in_files(step):
            return paced_source(step, random.Random(f"{self.seed} {step.name}"), self.opened, longest=self.longest)
        path = f"{folder_of_logs(self.folder, step)}/"
        return StatefulSource(Lines(path, discover_every=SEARCH if self._watches else None))

    def _decode(self, step: Step, stream: Any) -> Any:
        if not is_in_files(step):
            return stream
        return stream.stateless_op(f"{step.name} read", Decoding())

    def _sink(self, flow: Flow, result: Run, step: Step) -> Any:
        del flow, result
        formatter = partial(_row, step.name, refuses=step.arg == REFUSES)
        return SqlSink(f"sqlite:///{_database_of(self.folder)}", "rows", key=(), formatter=formatter)

    def check(self) -> str:
        """Compare the rows, the dead letters and the states with what they must be."""
        backend, rows = self.backend(STATE), self._rows()
        for flow, expected in zip(self.flows, self.expected, strict=True):
            vague = lifted(flow.dataflow.steps, counts_epochs)
            for step in flow.dataflow.steps:
                if step.kind == "sink" and step.name not in vague:
                    refused = expected.refused.get(step.name, [])
                    _compare(step.name, "rows", expected.records[step.name], rows.get(step.name, []))
                    _compare(step.name, "letters", refused, self._letters(backend, step.name))
        self.check_states(backend, "at the end")
        return f"{sum(map(len, rows.values()))} rows, {sum(1 for _ in dead_letters(backend))} letters"

    def check_letters(self, backend: FsspecBackend, what: str) -> None:
        """Do nothing: the letters of an exactly-once sink have those of the end."""

    def _rows(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        database = sqlite3.connect(_database_of(self.folder))
        for sink, row in database.execute("select sink, row from rows"):
            found.setdefault(sink, []).append(pickle.loads(row))
        database.close()
        return found

    def _letters(self, backend: FsspecBackend, sink: str) -> list[Any]:
        return [pickle.loads(letter.value["row"]) for letter in dead_letters(backend, sink)]


def _row(sink: str, msg: Any, *, refuses: bool) -> dict[str, Any]:
    record = pickle.dumps((msg.key, typed(msg.value), typed(msg.timestamp)))
    return {"sink": sink, "row": record, "refused": int(refuses and is_refused(msg.value))}


def _compare(sink: str, what: str, expected: Sequence[Any], found: Sequence[Any]) -> None:
    wanted, got = Counter((it.key, typed(it.value), typed(it.timestamp)) for it in expected), Counter(found)
    if wanted != got:
        raise Difference(f"{what} of {sink} lack {shown(wanted - got)}, and have {shown(got - wanted)} too many")


def main(place: str, runtime: str, workers: str, processes: str, milliseconds: str, mode: str = "") -> None:
    """Run the job, or check it."""
    job = ScriptJob(Path(place), watches=mode == "watch")
    if mode == "check":
        print(job.check())
        return
    how: dict[str, Any] = {
        "at_end": "keep" if job._watches else "finish",
        "parallelism": int(workers),
        "debug": job.debug,
    }
    build, every = partial(job.build, job.new_run()), timedelta(milliseconds=int(milliseconds) or 0.001)
    made: Any = SingleThreadRuntime(build, job.backend(STATE), every, **how)
    if runtime != "thread":
        how |= {"processes": int(processes), "start_method": runtime, "restart": RestartPolicy(20)}
        made = MultiProcessRuntime(build, job.backend(STATE), every, **how)
    made.execute()


if __name__ == "__main__":
    main(*sys.argv[1:])
