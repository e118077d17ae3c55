"""Scripts of random dataflows that are killed while their files rotate and their database refuses rows."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.campaign.attack import descendants
from tests.campaign.cases import Campaign, Difference
from tests.campaign.drawn_script import STATE, folder_of_logs, is_in_files, save
from tests.campaign.flows import Flow, flows, resting
from tests.kit.killing import start_child
from tests.kit.waiting import wait_until
from tests.properties.building import keyed_states
from tests.properties.specs import REFUSES, Part, Step

__all__ = ["scripts"]

PROGRAM = "tests.campaign.drawn_script"
POINTS = (
    *("before-prepare", "prepared", "data-written", "before-manifest", "manifest-written"),
    *("before-commit", "committed", "divided", "amended"),
)
ENDS = (0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)
KILLED = ("could not be started", "was killed by SIGKILL")
"""What a run says at the end if a process was killed before the workers were there, or while the run was being stopped:
then it is not started again."""

SECONDS = 240
"""How long a run may take that is not killed."""


def scripts(campaign: Campaign) -> None:
    """Run cases until the time is up."""
    for seed in campaign.seeds():
        campaign.attempt(seed, partial(_case, seed))


def _case(seed: int) -> str:
    rng = random.Random(seed)
    several = [it for it in flows(seed, 4) if _is_movable(it)][: rng.randint(1, 2)]
    if not several or rng.random() < 0.2:
        several.append(resting(rng).named("resting: "))
    several = [_refusing(rng, flow) for flow in several]
    with TemporaryDirectory() as name:
        folder = Path(name)
        save(folder, several, seed, rng.choice([2, 6]))
        steps = [step for flow in several for step in flow.dataflow.steps if step.kind == "source"]
        logs = [Logs(folder_of_logs(folder, step), step, rng) for step in steps if is_in_files(step)]
        done: Counter[str] = Counter()
        for _ in range(rng.randint(1, 4)):
            for log in logs:
                log.write(rng.random())
            done[_broken_off(rng, folder, logs)] += 1
            for log in logs:
                log.rotate(is_read=False)
        for log in logs:
            log.write(1)
        said = _to_the_end(rng, folder)
        return f"{len(several)} dataflows, {len(logs)} in files: {dict(done)}, {said}"


def _refusing(rng: random.Random, flow: Flow) -> Flow:
    """Return a flow about half of whose sinks refuse some records; none has parts."""
    steps = [
        replace(step, arg=REFUSES) if step.kind == "sink" and rng.random() < 0.5 else step
        for step in flow.dataflow.steps
    ]
    dataflow = replace(flow.dataflow, steps=tuple(steps))
    return replace(flow, dataflow=dataflow, kept=flow.kept - flow.counted, counted=frozenset())


def _is_movable(flow: Flow) -> bool:
    return flow.dataflow.movable and all(spec.placement is not None for spec in keyed_states(flow.dataflow))


def _arguments(rng: random.Random, folder: Path, mode: str) -> list[str]:
    runtime = rng.choice(["thread", "spawn", "forkserver"])
    workers, processes = rng.randint(1, 4), rng.randint(1, 3)
    return [str(folder), runtime, str(workers), str(min(workers, processes)), rng.choice(["0", "50", "600"]), mode]


def _broken_off(rng: random.Random, folder: Path, logs: list[Logs]) -> str:
    """Run for a while, write and rotate meanwhile, and kill or stop the run; return how it ended."""
    at_point = rng.random() < 0.6
    point = f"{rng.choice(POINTS)}:{rng.randint(1, 4)}" if at_point else ""
    with start_child(PROGRAM, *_arguments(rng, folder, "watch"), point=point) as child:
        try:
            wait_until(lambda: (folder / STATE).exists() or child.poll() is not None, SECONDS)
            until = time.monotonic() + rng.uniform(0, 6)
            while child.poll() is None and time.monotonic() < until:
                time.sleep(rng.uniform(0.2, 1))
                _meanwhile(rng, child, logs)
            killed = not at_point and rng.random() < 0.7
            child.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
            _, errors = child.communicate(timeout=SECONDS)
        finally:
            child.kill()
    if child.returncode not in ENDS and not any(it in errors.strip().rpartition("\n")[2] for it in KILLED):
        raise Difference(f"a run ended with {child.returncode}: {errors[-3000:]}")
    return f"killed at {point}" if at_point and child.returncode == -signal.SIGKILL else str(child.returncode)


def _meanwhile(rng: random.Random, child: subprocess.Popen[str], logs: list[Logs]) -> None:
    """Write and rotate now and then, or kill a process that the run has started."""
    for log in logs:
        if rng.random() < 0.5:
            log.write(rng.random() / 2)
        if rng.random() < 0.3:
            log.rotate(is_read=True)
    workers = descendants(child.pid)
    if workers and rng.random() < 0.2:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)


def _to_the_end(rng: random.Random, folder: Path) -> str:
    for mode in ("", "check"):
        with start_child(PROGRAM, *_arguments(rng, folder, mode)) as child:
            said, errors = child.communicate(timeout=SECONDS)
        if child.returncode != 0:
            raise Difference(f"{mode or 'the last run'}: {errors[-3000:]}")
    return said.strip()


class Logs:
    """The files of a source, which grow and rotate.

    Args:
        folder: where they are.
        step: the source. The order of a single log is specified, so it has no second file.
        rng: decides what happens.
    """

    def __init__(self, folder: Path, step: Step, rng: random.Random) -> None:
        folder.mkdir(parents=True)
        self._rng = rng
        self._is_single = len(step.arg) == 1
        self._lines = [self._of(part, at) for at, part in enumerate(step.arg)]
        self._paths = [folder / f"{at}.log" for at in range(len(step.arg))]
        self._names = 0
        for path in self._paths:
            path.touch()

    @staticmethod
    def _of(part: Part, at: int) -> list[str]:
        rows = zip(part.values, part.timestamps, strict=True)
        return [f"{(f'{at}-{number}', value, time)!r}\n" for number, (value, time) in enumerate(rows)]

    def write(self, share: float) -> None:
        """Write some of the lines that are left, or all."""
        for path, lines in zip(self._paths, self._lines, strict=True):
            some = len(lines) if share == 1 else self._rng.randint(0, max(1, int(share * len(lines))))
            with path.open("a") as file:
                file.write("".join(lines[:some]))
            del lines[:some]

    def rotate(self, *, is_read: bool) -> None:
        """Rotate some of the files; while they are read, only by renaming."""
        for at, path in enumerate(self._paths):
            if not path.stat().st_size or self._rng.random() < 0.5:
                continue
            self._names += 1
            old = path.with_name(f"{path.name.partition('.')[0]}.log.{self._names}")
            how = "rename" if is_read or self._is_single else self._rng.choice(["rename", "rename", "truncate", "gzip"])
            if how == "truncate":
                shutil.copy(path, old)
                path.write_text("")
            elif how == "gzip":
                with gzip.open(f"{old}.gz", "wb") as file:
                    file.write(path.read_bytes())
                path.write_text("")
            else:
                path.rename(old)
            if self._is_single:
                self._paths[at] = old  # who writes has it open
            else:
                path.touch()
