"""A program whose functions fail for many numbers. It replays its dead letters all the time.

``python -m tests.bad_records.programs.replaying FOLDER [OPTIONS]`` with the options of `Options`, as JSON. Each number
fails in at most one operator. Once the file ``mended`` is in the folder, even numbers no longer fail. It prints
``ended N`` with the number of restarts.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from malflow import (
    MalflowError,
    MultiProcessRuntime,
    RestartPolicy,
    RunHandle,
    SingleThreadRuntime,
    StreamProvider,
)
from malflow.failures import Replayed
from malflow.sinks import JsonLinesSink, VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import kept_states
from tests.multiprocess.programs.totals import is_first
from tests.processes.programs.counting import say
from tests.spark.programs.writes import executor

__all__ = ["KEYS", "OPERATORS", "PARTS", "Options", "backend_of", "build", "check", "finish", "runtime_of"]

OPERATORS = ("parse", "call", "add")
"""The operators with letters: before the exchange, and after it with calls and with a state."""

PARTS = 3
PER_TICK = 10
KEYS = 4
ORDERS = 16
"""The keys of the operator ``order``, which parks them: some have failing numbers until all are mended."""

NEVER_ENDS = [PAUSE] * 100_000


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        size: the count of numbers in each of the three parts.
        runtime: ``single_thread`` or ``processes``.
        replays: whether letters are replayed all the time.
        ends: whether the run ends with its input.
        deaths: the numbers whose call kills its process, the first time.
        executors: whether it kills the executor as well, on Spark.
    """

    size: int = 400
    runtime: str = "single_thread"
    replays: bool = True
    ends: bool = True
    deaths: Sequence[int] = ()
    executors: bool = False


def fails(folder: Path, operator: str, number: int) -> None:
    """Fail for each number of this operator, with the address of an object in the text.

    Raises:
        ValueError: if it fails.
    """
    if number % 7 != OPERATORS.index(operator):
        return
    if number % 2 or not (folder / "mended").exists():
        raise ValueError(f"{number} at {object()}")


def parsed(folder: Path, number: int) -> int:
    fails(folder, "parse", number)
    return number


async def called(folder: Path, options: Options, number: int) -> int:
    """Note the call, which takes a moment."""
    with (folder / "calls").open("a", encoding="utf-8") as calls:
        calls.write(f"{number}\n")
    await asyncio.sleep(0.0005 * (number % 4))
    if number in options.deaths and is_first(folder / f"dead {number}"):
        if options.executors:
            os.kill(executor(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    fails(folder, "call", number)
    return number


def added(folder: Path, _key: int, number: int, seen: list[int]) -> tuple[int, list[int]]:
    """Change the state before the failure."""
    seen.append(number)
    fails(folder, "add", number)
    return number, seen


def ordered(folder: Path, _key: int, number: int, seen: list[int]) -> tuple[int, list[int]]:
    """Fail for some numbers until the functions are mended; later numbers with the same key wait."""
    seen.append(number)
    if number % 32 in (4, 9) and not (folder / "mended").exists():
        raise ValueError(f"{number} at {object()}")
    return number, seen


def build(folder: Path, options: Options, provider: StreamProvider) -> None:
    """Build the dataflow."""
    script: dict[str, list[Any]] = {}
    for part in range(PARTS):
        numbers = range(part, PARTS * options.size, PARTS)
        chunks = [numbers[at : at + PER_TICK] for at in range(0, options.size, PER_TICK)]
        script[f"{part}"] = [item for chunk in chunks for item in (*chunk, PAUSE)]
        script[f"{part}"] += [] if options.ends else NEVER_ENDS
    stream = provider.new_stream().source("numbers", ScriptedSource(script))
    keyed = stream.map("parse", partial(parsed, folder), on_error="dead_letter").key_distribute(
        "key", lambda msg: msg.value % KEYS
    )
    answers = keyed.map_async(
        "call", partial(called, folder, options), capacity=8, on_error="dead_letter"
    ).stateful_map("add", partial(added, folder), list, on_error="dead_letter")
    by_key = stream.key_distribute("order key", lambda msg: msg.value % ORDERS)
    by_key.stateful_map("order", partial(ordered, folder), list, on_error="park").sink("order out", VecSink())
    answers.sink("out", JsonLinesSink[Any, Any, Any](f"{folder}/out/", formatter=lambda msg: msg.value))


def backend_of(folder: Path) -> FsspecBackend:
    """Return where the snapshots are."""
    return FsspecBackend(str(folder / "state"), job="replaying", retain=2)


def runtime_of(folder: Path, options: Options) -> Any:
    """Return the runtime of a run."""
    make = partial(build, folder, options)
    every = timedelta(seconds=0.02)
    if options.runtime == "single_thread":
        return SingleThreadRuntime(make, backend_of(folder), every, 2)
    return MultiProcessRuntime(
        make,
        backend_of(folder),
        every,
        2,
        processes=2,
        start_method="forkserver",
        restart=RestartPolicy(attempts=10, backoff=timedelta(milliseconds=10)),
    )


def replay_all(handle: RunHandle) -> None:
    """Replay the letters of all operators, unless the run has ended or is restarting."""
    for operator in (*OPERATORS, "order"):
        with suppress(MalflowError):
            handle.replay(operator).result(60)


def finish(folder: Path, size: int) -> Mapping[str, Replayed]:
    """Read the rest of the input, mend the functions and replay all letters, in one thread.

    Args:
        folder: the folder.
        size: the count of numbers in each part.

    Returns:
        The outcome of the replay, by operator.
    """
    runtime_of(folder, Options(size, replays=False)).execute()
    (folder / "mended").touch()
    handle: RunHandle = runtime_of(folder, Options(size, ends=False)).start()
    try:
        return {operator: handle.replay(operator).result(60) for operator in (*OPERATORS, "order")}
    finally:
        handle.stop()
        handle.await_termination(60)


def check(folder: Path, size: int, *, whole: bool = False) -> None:
    """Check that each number in the newest snapshot is in one place: in a state or among its operator's letters.

    Args:
        folder: the folder.
        size: the count of numbers in each part.
        whole: whether the job is finished.
    """
    backend = backend_of(folder)
    check_order(folder, size, whole=whole)
    letters = [letter for letter in dead_letters(backend) if letter.operator != "order"]
    states = kept_states(backend, "add")
    added = [number for seen in states.values() for number in seen]
    everywhere = Counter([*added, *(letter.value for letter in letters)])
    assert not [number for number, times in everywhere.items() if times > 1]
    assert all(number % KEYS == key for key, seen in states.items() for number in seen)
    assert all(OPERATORS[letter.value % 7] == letter.operator for letter in letters)
    assert len({(letter.operator, letter.id) for letter in letters}) == len(letters)
    assert {letter.message for letter in letters} == {f"{it.value} at <object object at 0x...>" for it in letters}
    files = sorted((folder / "out").glob("part-*"))
    out = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert len({*out}) == len(out)
    if not whole:
        assert {*out} <= {*added}, "what is visible is in the snapshot"
        return
    numbers = {*range(PARTS * size)}
    lasting = {number for number in numbers if number % 7 < len(OPERATORS) and number % 2}
    assert {letter.value for letter in letters} == lasting
    assert {*added} == numbers - lasting
    assert sorted(out) == sorted(added)
    calls = [*map(int, (folder / "calls").read_text(encoding="utf-8").split())]
    assert {*calls} == {number for number in numbers if number % 7 or number % 2 == 0}


def check_order(folder: Path, size: int, *, whole: bool) -> None:
    """Check that each key's numbers are in order across its state and its waiting letters."""
    backend = backend_of(folder)
    states = kept_states(backend, "order")
    waiting: dict[int, list[int]] = {}
    for letter in dead_letters(backend, "order"):
        assert letter.is_parked
        assert letter.error == ("ValueError" if letter.key not in waiting else "Parked")
        waiting.setdefault(letter.key, []).append(letter.value)
    for key in {*states, *waiting}:
        numbers = [*states.get(key, []), *waiting.get(key, [])]
        for part in range(PARTS):
            of_part = [number for number in numbers if number % PARTS == part]
            assert of_part == sorted({*of_part}), f"the numbers of key {key} are not in their order"
    if whole:
        assert waiting == {}
        assert sorted(number for seen in states.values() for number in seen) == [*range(PARTS * size)]


def main() -> None:
    """Run the program to its end."""
    folder, options = Path(sys.argv[1]), Options(**json.loads(sys.argv[2]))
    handle = runtime_of(folder, options).start()
    while not handle.await_termination(0.005):
        if options.replays:
            replay_all(handle)
    say(f"ended {handle.progress.restarts}")


if __name__ == "__main__":
    main()
