"""A plan says what the start then does: on generated pairs of programs, in the same words, and without a trace."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import event, example, given

from malflow import SingleThreadRuntime, SnapshotError, StreamProvider
from malflow.errors import MalflowError, OperatorError
from malflow.runtime.building import built
from malflow.runtime.options import RunOptions
from malflow.runtime.start_plan import PlannedRefusal, StartPlan, planned
from malflow.sinks import StatelessSink
from malflow.snapshot import FsspecBackend, preview, restore
from malflow.sources import StatefulSource
from malflow.states.kinds import StateKind
from malflow.testing import ScriptedSource
from tests.kit.backends import in_memory, kept
from tests.kit.counted_files import JsonFiles
from tests.kit.counting import ids
from tests.kit.waiting import wait_until
from tests.monitor.watching import numbers
from tests.planning import programs
from tests.planning.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.damages_snapshots("the classes in them change")]

_MOST_FAULTS = 20


class Job:
    """The state of a job, in memory, and the folder of its output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend = in_memory()

    def run(self, program: Program, **options: Any) -> None:
        given = {**program.options, **options}
        SingleThreadRuntime(program.builder(self.folder), self.backend, **given).execute()

    def plan(self, program: Program, *, deep: bool, **options: Any) -> StartPlan:
        """Plan a start, and check that everything is as it was."""
        before = self.everything()
        made = planned(
            built(program.builder(self.folder)),
            RunOptions(persistence=self.backend, **{**program.options, **options}),
            deep=deep,
        )
        assert self.everything() == before
        return made

    def everything(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Return the bytes of the store and of the files."""
        store = self.backend._filesystem.store
        data = {name: bytes(file.getvalue()) for name, file in store.items()}
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return data, {str(path): path.read_bytes() for path in files}

    def failure(self, program: Program) -> MalflowError | None:
        """Return the error of a start, if it fails; apart from claims, a failed start leaves the job unchanged."""
        ours = self.backend
        self.backend = copied(ours)
        try:
            self.run(program)
        except MalflowError as error:
            return error
        finally:
            self.backend = ours
        return None


def copied(backend: FsspecBackend) -> FsspecBackend:
    copy = in_memory()
    theirs, ours = backend._filesystem, copy._filesystem
    ours.pseudo_dirs[:] = theirs.pseudo_dirs
    for name, file in theirs.store.items():
        ours.pipe_file(name, file.getvalue())
    return copy


def texts(plan: StartPlan) -> list[str]:
    return [str(it.error) for it in plan.refusals]


def corrected(before: Program, program: Program, refusal: PlannedRefusal, plan: StartPlan) -> Program:
    """Return a program without the cause of a refusal, corrected as a user would do it."""
    fault = None if refusal.found is None else refusal.found.fault
    operators = [name.partition("/")[0] for name in refusal.states]
    old = {it.entry.name: it.spec.name for it in plan.states if it.entry is not None and it.spec is not None}
    match fault:
        case "homeless" | "kind":
            return replace(program, dropped=(*program.dropped, *operators))
        case "renamed":
            here = {*(it.name for it in program.ops), program.source, program.sink}
            return replace(
                program,
                renamed={name: new for name, new in program.renamed.items() if name not in operators},
                dropped=(*program.dropped, *(it for it in operators if it not in here)),
            )
        case "definition":
            was = next(it for it in before.ops if it.name == operators[0])
            return program.with_op(old[operators[0]], size=was.size, total=was.total)
        case "shape":
            was = next(it for it in before.ops if it.name == operators[0])
            return program.with_op(old[operators[0]], held=was.held)
    text = str(refusal.error)
    if ".key_local()" in text:
        return program.with_op(operators[0], key="slots")
    kinds = {it.name: it.kind for it in program.ops}
    if kinds[operators[0]] == "distinct":  # it has no migration
        versions = {it.name: it.entry.version for it in plan.states if it.entry is not None}
        return program.with_op(operators[0], version=versions[operators[0]])
    if "supports only version" in text:
        return program.with_op(operators[0], version=4, migrate="drops")
    assert "pass migrate=" in text or "the migration of key" in text
    return program.with_op(operators[0], migrate="drops")


Op = programs.Op
OF_ANOTHER_KIND = Program((Op("a", "window"),)), Program((Op("a", "stateful_map"),))
WITH_LETTERS = (
    Program((Op("c", "letters"),)),
    Program((Op("d", "letters"), Op("c", "window")), renamed={"c": "d"}),
)


@pytest.mark.fault("P1")
@example(OF_ANOTHER_KIND)
@example(WITH_LETTERS)
@given(programs.pairs())
def test_plan_says_what_the_start_does(pair: tuple[Program, Program]) -> None:
    before, after = pair
    with TemporaryDirectory() as folder:
        job = Job(Path(folder))
        job.run(before)
        faults = 0
        while True:
            plan, shallow = job.plan(after, deep=True), job.plan(after, deep=False)
            refused, failure = texts(plan), job.failure(after)
            assert texts(shallow) == [it for it in refused if "the migration of key" not in it]
            assert (None if failure is None else str(failure)) == (refused[0] if refused else None)
            if failure is None:
                break
            assert type(failure) is type(plan.refusals[0].error)
            faults += 1
            assert faults < _MOST_FAULTS
            after = corrected(before, after, plan.refusals[0], plan)
            assert texts(job.plan(after, deep=True)) == refused[1:], "each of them is there from the beginning"
        event(f"faults: {faults}")
        check_states(job, after, plan)


def check_states(job: Job, program: Program, plan: StartPlan) -> None:
    """Check that a start has the plan's states, with as many keys."""
    there = {name: count for name, count in kept(job.backend).keys.items() if count}
    job.run(program)
    here = kept(job.backend)
    for it in plan.states:
        if it.spec is None or it.spec.kind in (StateKind.FRONTIER, StateKind.EPOCHS, StateKind.SINK):
            continue
        keys = here.keys.get(it.name, 0)
        if it.fate == "kept" and it.entry is not None:
            assert keys == plan.migrated.get(it.name, there.get(it.entry.name, 0)), it.name
        elif it.spec.kind is not StateKind.SOURCE:
            assert keys == 0 or plan.refusals or it.spec.name == program.source, it.name


def of(*ops: programs.Op, **options: Any) -> Program:
    return Program(ops, **options)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_all_refusals_are_collected(job: Job) -> None:
    job.run(
        of(Op("a", "stateful_map"), Op("b", "window"), Op("c", "stateful_map", held=("Held", 0)), Op("d", "ttl_map"))
    )
    program = of(
        Op("a", "ttl_map"),
        Op("b", "window", size=4),
        Op("c", "stateful_map", held=("Held", 1)),
        renamed={"source": "nothing"},
        source="input",
    )
    plan = job.plan(program, deep=True)
    faults = [None if it.found is None else it.found.fault for it in plan.refusals]
    assert faults == ["renamed", "kind", "homeless", "definition", "shape"]
    assert [it.states for it in plan.refusals] == [("source",), ("a",), ("d",), ("b",), ("c",)]


def test_refusals_of_loading_are_collected(job: Job) -> None:
    job.run(of(Op("a", "stateful_map", version=2), Op("b", "stateful_op"), Op("c", "stateful_map", "local")))
    program = of(Op("a", "stateful_map"), Op("b", "stateful_op", version=2), Op("c", "stateful_map"), parallelism=2)
    told = texts(job.plan(program.with_op("c", key="local"), deep=False))
    assert ["version 2 in the snapshot" in told[0], "pass migrate=" in told[1], ".key_local()" in told[2]] == [True] * 3
    assert len(told) == 3


@pytest.mark.fault("P4")
def test_failing_migrations_are_all_tried(job: Job) -> None:
    names = ("a", "b", "c")
    job.run(of(*(Op(name, "stateful_map") for name in names)))
    program = of(*(Op(name, "stateful_map", version=2, migrate="bad") for name in names)).with_op("b", migrate="good")
    plan = job.plan(program, deep=True)
    assert [(type(it.error), it.states) for it in plan.refusals] == [(OperatorError, ("a",)), (OperatorError, ("c",))]
    assert plan.migrated == {"b": 3}
    assert job.plan(program, deep=False).refusals == ()


def test_moves(job: Job) -> None:
    job.run(of(Op("a", "stateful_map"), Op("b", "stateful_map", "modulo")))
    program = of(Op("a", "stateful_map"), Op("b", "stateful_map", "modulo"), parallelism=3)
    moves = job.plan(program, deep=False).moves
    assert {name: (it.keys, it.is_exact) for name, it in moves.items()} == {"a": (2, False), "b": (None, False)}
    exact = job.plan(program, deep=True).moves
    job.run(program)
    held = kept(job.backend).states
    for name, it in exact.items():
        moved = sum(len(states) for worker, states in held[name].items() if worker != 0)
        assert (it.keys, it.is_exact) == (moved, True)


@pytest.mark.fault("P2")
class Unsure(JsonFiles):
    """A sink that does not know whether it has committed."""

    def commit(self, handles: Any) -> None:
        if handles:
            raise OSError("no answer")


def test_transactions_that_the_start_commits(job: Job) -> None:
    def build_dataflow(provider: StreamProvider, kind: type[JsonFiles] = JsonFiles) -> None:
        items = provider.new_stream().source("items", StatefulSource(ScriptedSource([1, 2])))
        items.sink("out", StatelessSink(kind(str(job.folder / "json"))))

    def plan() -> StartPlan:
        before = job.everything()
        made = planned(built(build_dataflow), RunOptions(persistence=job.backend), deep=True)
        assert job.everything() == before
        return made

    failing = SingleThreadRuntime(lambda provider: build_dataflow(provider, Unsure), job.backend)
    with pytest.raises(OperatorError, match="no answer"):
        failing.execute()
    (claim,) = (job.folder / "json").rglob("claim")
    number = claim.read_text()
    made = plan()
    assert (made.pending, made.refusals) == ({"out": 1}, ())
    assert "the last commit of 'out': if it is after snapshot 2, the start is refused" in made.unknown
    assert claim.read_text() == number, "the output is not fenced"
    assert not [*claim.parent.glob("*.json")]
    SingleThreadRuntime(build_dataflow, job.backend).execute()
    assert len([*claim.parent.glob("*.json")]) == 1
    assert plan().pending == {"out": 0}


@pytest.mark.parametrize("restore", [None, 99, "latest"])
def test_start_without_a_snapshot(job: Job, restore: Any) -> None:
    program = of(Op("a", "stateful_map"))
    plan = job.plan(program, deep=True, restore=restore)
    assert (plan.manifest, plan.latest) == (None, None)
    told = texts(plan)
    assert told == (["job 'default' has no snapshots; got restore=99"] if restore == 99 else [])
    assert {it.fate for it in plan.states} == (set() if told else {"new"})
    assert job.everything() == ({}, {})
    if told:
        with pytest.raises(SnapshotError, match=told[0]):
            job.run(program, restore=restore)


def test_start_from_an_older_snapshot(job: Job) -> None:
    program = of(Op("a", "stateful_map"))
    for _ in range(3):
        job.run(program)
    first, *_, last = found = ids(job.backend)
    plan = job.plan(program, deep=True, restore=first)
    assert plan.manifest is not None
    assert (plan.manifest.snapshot, plan.latest) == (first, last)
    told = texts(job.plan(program, deep=False, restore=99))
    assert told == [f"job 'default' has no snapshot with the id 99; it has {found}"]


def test_snapshot_that_is_deleted_while_it_is_read(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.backend, program = in_memory(retain=1), of(Op("a", "stateful_map"))
    job.run(program)
    first, real = ids(job.backend)[-1], restore.load
    runs = [program] * 4

    def load(*args: Any) -> Any:
        while runs:
            job.run(runs.pop(), restore=None)
        return real(*args)

    monkeypatch.setattr(preview, "load", load)
    made = planned(built(program.builder(job.folder)), RunOptions(persistence=job.backend), deep=True)
    assert (made.refusals, made.latest) == ((), ids(job.backend)[-1])
    assert made.manifest is not None
    assert made.manifest.snapshot == ids(job.backend)[-1] > first


@pytest.mark.slow
def test_plans_beside_a_run_that_deletes_snapshots(tmp_path: Path) -> None:
    backend = FsspecBackend(tmp_path, retain=1)
    handle = SingleThreadRuntime(numbers(), backend, timedelta(milliseconds=1)).start()
    wait_until(lambda: (handle.progress.snapshot or 0) > 10)
    for _ in range(30):
        made = planned(built(numbers()), RunOptions(persistence=backend, parallelism=2), deep=True)
        assert made.refusals == ()
        assert made.manifest is not None
    assert not handle.has_ended, "the run is not disturbed"
    handle.stop()
    handle.await_termination(60)
