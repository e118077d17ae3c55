"""The suite for sources: whether a source resumes, replays, moves and confirms as malflow requires."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from fsspec.implementations.memory import MemoryFileSystem

from malflow.checks import checked_wait
from malflow.connectors.by_name import Connection
from malflow.durations import Duration
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.graph import Graph
from malflow.operators.hosting.parts import list_parts
from malflow.operators.hosting.reader import lag_of, offers_own
from malflow.sinks.vec import VecSink
from malflow.snapshot.backend import FsspecBackend
from malflow.sources.contract import StatefulSource, StatefulSourceImpl, poll_until
from malflow.streams.stream import StreamProvider
from malflow.testing.driven import DrivenRun
from malflow.testing.laws import Laws, likeness
from malflow.words import plural, short_repr

if TYPE_CHECKING:
    from malflow.testing.value_laws import SourceValues

__all__ = ["SOURCE_LAWS", "assert_source"]

SOURCE_LAWS: Final = (
    "parts",
    "records",
    "limit",
    "replay",
    "positions",
    "resume",
    "move",
    "go on",
    "committed",
    "restored",
    "frozen",
    "lag",
    "pickle",
    "runs",
    "secrets",
    "values",
)

_REST = 0.005
"""Seconds between two polls without records. Less: more processor time; more: a slower test."""

_LARGE = 1000
"""A poll limit above the records of a test, so that the reader may return all of them at once."""

_MOST_CUTS = 8
"""Positions of a part at which it is resumed. More: slower; fewer: faults at odd positions are missed."""

_SHORTLY = 0.5
"""Seconds that a system is frozen. Less: the poll may not have begun; more: a slower test."""

_LOST = 4
"""Records that are lost, so that half of them, or thrice as many, can be added."""

_RETURNS: Final = ((_LOST - 2, False), (3 * _LOST, False), (3 * _LOST, True))
"""The number of records to add after the input has lost some, and whether it is read meanwhile."""
_WORKERS = (1, 2, 3, 2, 1)

Record = tuple[Any, Any]


def assert_source(
    make_source: Callable[[], Any],
    *,
    count: int | None = None,
    add_records: Callable[[int], object] | None = None,
    copy_input: Callable[[], Callable[[], object]] | None = None,
    freeze: Callable[[], AbstractContextManager[object]] | None = None,
    timeout: Duration = 30.0,
    without: Collection[str] = (),
    secrets: Sequence[str] = (),
    values: Iterable[SourceValues] = (),
) -> None:
    """Check that a source keeps the laws of the contract. A job that reads it is then exactly-once.

    The records in the external system must not change meanwhile, except by `add_records`; a few dozen, in two or more
    parts, are enough. The laws:

    - ``parts``: two source objects list the same parts, each once, and they are valid keys.
    - ``records``: all records arrive, until every part is finished or there are `count` of them.
    - ``limit``: ``poll_batch(limit)`` returns two columns of equal length, of at most `limit` records.
    - ``replay``: another object returns the same records of each part in the same order, whatever the limit of a poll.
    - ``positions``: ``snapshot()`` can be pickled, changes nothing, and is not changed later.
    - ``resume``: a reader built from any position, by another object, returns the rest of the records.
    - ``move``: so does a reader built from ``collect()``, after `suspend`.
    - ``go on``: a reader that has been left behind continues from a later position, if ``go_on_from`` returns True.
    - ``committed``: confirming a position, even twice or again after a restart, moves no reader, and loses no record
      after it.
    - ``restored``: checked if `add_records` and `copy_input` are passed. If the input has returned to an earlier state,
      during a run or between two, and has grown again, by less or more than before, a reader raises an error, or
      returns exactly the records added since: there is no gap. A reader that had not passed the end of the copy
      returns them without an error.
    - ``frozen``: checked if `freeze` and `add_records` are passed. A reader of an external system that does not answer
      raises within `timeout`; if the system answers again soon, it continues.
    - ``lag``: ``lag()`` is None or a number, at least zero, and zero or None after the last record.
    - ``pickle``: the source can be sent to other processes.
    - ``runs``: a run that is stopped, killed and rescaled again and again gets each record once, in the order of its
      part.
    - ``secrets``: none of `secrets` is in a position or in the ``repr`` of a source or reader.
    - ``values``: checked if `values` is passed. Each generated value of each kind of cell is read as another program
      wrote it, or refused by an error that names it, or changed as a line of the docs says.

    Args:
        make_source: returns a new source of the same records: an implementation, a `StatefulSource`, or a result of
            `malflow.connect`.
        count: the number of records in all parts; required if parts never finish.
        add_records: adds this many records to the external system, with new values.
        copy_input: copies everything that the external system keeps of the input, and returns a function that replaces
            the current input by this copy, as a restored backup or a promoted standby does.
        freeze: returns a context in which the external system is suspended: connections stay open, without an answer.
        timeout: the maximum time to wait for records, and until a frozen system is given up.
        without: the laws not to check.
        secrets: texts that may not be shown, such as passwords.
        values: the kinds of cells that the source reads, each with its values and an independent writer.

    Raises:
        AssertionError: if a law is broken; the message names the first.
        GraphError: if it is not a source with positions, or `without` has an unknown law.

    >>> from malflow.testing import ScriptedSource
    >>> assert_source(lambda: ScriptedSource({"a": [1, 2, 3], "b": [4, 5]}))
    """
    __tracebackhide__ = True
    laws = Laws("assert_source", SOURCE_LAWS, without, secrets)
    suite = _SourceSuite(make_source, count, checked_wait("assert_source", timeout), laws)
    suite.check()
    if add_records is not None and copy_input is not None and laws.has("restored"):
        for added, is_amid in _RETURNS:
            suite.check_restored(add_records, copy_input, added, is_amid=is_amid)
    if add_records is not None and freeze is not None and laws.has("frozen"):
        suite.check_frozen(add_records, freeze)
    if laws.has("values"):
        for kind in values:
            kind.check()


class _SourceSuite:
    def __init__(self, make_source: Callable[[], Any], count: int | None, timeout: float, laws: Laws) -> None:
        self._make = make_source
        self._count = count
        self._timeout = timeout
        self._laws = laws
        self._expected: dict[Any, list[Record]] = {}
        self._positions: dict[Any, list[tuple[int, Any]]] = {}

    def check(self) -> None:
        """Check the laws, the basic ones first."""
        __tracebackhide__ = True
        source = self._source()
        self._laws.hide("the repr of the source", repr(source.impl))
        self._check_parts(source)
        self._read_all()
        self._check_replay()
        for part, positions in self._positions.items():
            for done, position in positions:
                self._check_resume(part, done, position)
            self._check_move(part)
            self._check_go_on(part)
            self._check_committed(part)
        if self._laws.has("pickle"):
            self._check_pickle(source)
        if self._laws.has("runs"):
            self._check_runs()

    def _source(self) -> StatefulSource[Any, Any, Any, Any]:
        made = self._make()
        if isinstance(made, Connection):
            made = made.source()
        return made if isinstance(made, StatefulSource) else StatefulSource(made)

    def _check_parts(self, source: StatefulSource[Any, Any, Any, Any]) -> None:
        with self._laws.of("parts"):
            first, second = list_parts("source", source), list_parts("source", self._source())
        self._laws.alike("parts", "the parts of two objects", first, second)
        self._parts = first

    @contextmanager
    def _reader(self, part: Any, position: Any, law: str) -> Iterator[Any]:
        """Build a reader from a new source object, and suspend it at the end."""
        __tracebackhide__ = True
        with self._laws.of(law):
            reader = self._source().build_part(part, position)
        try:
            yield reader
        finally:
            _suspend(reader)

    def _polled(self, reader: Any, limit: int, law: str) -> list[Record]:
        __tracebackhide__ = True
        with self._laws.of(law):
            values, stamps = reader.poll_batch(limit) if hasattr(reader, "poll_batch") else poll_until(reader, limit)
        if len(values) != len(stamps) or len(values) > limit:
            self._laws.broken(
                "limit", f"poll_batch({limit}) returned {plural(len(values), 'value')}, {len(stamps)} timestamps"
            )
        return list(zip(values, stamps, strict=True))

    def _read(self, reader: Any, wanted: int, limit: int, law: str) -> list[Record]:
        """Read `wanted` records, or fewer if the part ends; the last poll may return more."""
        __tracebackhide__ = True
        records: list[Record] = []
        deadline = time.monotonic() + self._timeout
        while len(records) < wanted and not reader.is_finished():
            more = self._polled(reader, limit if limit == _LARGE else min(limit, wanted - len(records)), law)
            records += more
            if not more:
                if time.monotonic() > deadline:
                    break
                time.sleep(_REST)
        if not reader.is_finished() and len(records) == wanted:
            records += self._polled(reader, 1, law)
        return records

    def _read_all(self) -> None:
        """Read the records of all parts in turn, one by one, and note positions."""
        __tracebackhide__ = True
        source = self._source()
        with ExitStack() as held, self._laws.of("records"):
            readers: dict[Any, Any] = {}
            for part in self._parts:
                readers[part] = source.build_part(part, None)
                held.callback(_suspend, readers[part])
                self._laws.hide("the repr of a reader", repr(readers[part]))
            self._expected = {part: [] for part in readers}
            at = {part: [self._noted(part, reader)] for part, reader in readers.items()}
            deadline = time.monotonic() + self._timeout
            while not self._is_complete(readers):
                polled = {
                    part: self._polled(reader, 1, "records")
                    for part, reader in readers.items()
                    if not reader.is_finished()
                }
                for part, records in polled.items():
                    self._expected[part] += records
                    if records:
                        at[part].append(self._noted(part, readers[part]))
                if not any(polled.values()):
                    self._wait(deadline)
            for part, reader in readers.items():
                self._check_lag(part, reader)
        for part, positions in at.items():
            for _, position, before in positions:
                if pickle.dumps(position, 5) != before:
                    self._laws.broken("positions", f"part {short_repr(part)}: {short_repr(position)} was changed later")
            step = max(1, len(positions) // _MOST_CUTS)
            chosen = [*positions[::step], *([positions[-1]] if (len(positions) - 1) % step else [])]
            self._positions[part] = [(done, position) for done, position, _ in chosen]

    def _wait(self, deadline: float) -> None:
        __tracebackhide__ = True
        if time.monotonic() > deadline:
            came = sum(map(len, self._expected.values()))
            wanted = "every part to finish" if self._count is None else f"{self._count} records"
            hint = "; pass count= if parts never finish" if self._count is None else ""
            self._laws.broken("records", f"{came} records arrived in {self._timeout:g} s, expected {wanted}{hint}")
        time.sleep(_REST)

    def _is_complete(self, readers: Mapping[Any, Any]) -> bool:
        came = sum(map(len, self._expected.values()))
        if self._count is not None and came >= self._count:
            return True
        return all(reader.is_finished() for reader in readers.values())

    def _noted(self, part: Any, reader: Any) -> tuple[int, Any, bytes]:
        """Return the number of records so far, the position after them, and its pickle."""
        __tracebackhide__ = True
        position = self._position(part, reader)
        return len(self._expected[part]), position, pickle.dumps(position, 5)

    def _position(self, part: Any, reader: Any) -> Any:
        __tracebackhide__ = True
        with self._laws.of("positions"):
            position, again = reader.snapshot(), reader.snapshot()
        what = f"the position {short_repr(position)} of part {short_repr(part)}"
        self._laws.pickled("positions", position, what)
        if likeness(position) != likeness(again):
            self._laws.broken("positions", f"{what} differs when asked again: {short_repr(again)}")
        return position

    def _check_lag(self, part: Any, reader: Any) -> None:
        __tracebackhide__ = True
        if not self._laws.has("lag") or not offers_own(reader, "lag"):
            return
        with self._laws.of("lag"):
            lag = lag_of(reader)
        if lag:
            self._laws.broken("lag", f"part {short_repr(part)} has a lag of {lag} after its last record")

    def _check_replay(self) -> None:
        __tracebackhide__ = True
        for part, expected in self._expected.items():
            for limit in (_LARGE, 3):
                with self._reader(part, None, "replay") as reader:
                    got = self._read(reader, len(expected), limit, "replay")
                what = f"part {short_repr(part)}, read again by polls of {limit}"
                self._laws.alike("replay", what, expected, got)

    def _check_resume(self, part: Any, done: int, position: Any) -> None:
        __tracebackhide__ = True
        if not self._laws.has("resume"):
            return
        rest = self._expected[part][done:]
        with self._reader(part, _copy(position), "resume") as reader:
            again = reader.snapshot()
            got = self._read(reader, len(rest), _LARGE, "resume")
        what = f"part {short_repr(part)}, resumed after {done} records at {short_repr(position)}"
        self._laws.alike("resume", what, rest, got)
        with self._reader(part, _copy(again), "resume") as reader:
            got = self._read(reader, len(rest), _LARGE, "resume")
        self._laws.alike("resume", f"{what}, and again before its first poll at {short_repr(again)}", rest, got)

    def _check_move(self, part: Any) -> None:
        __tracebackhide__ = True
        if not self._laws.has("move"):
            return
        expected = self._expected[part]
        with self._reader(part, None, "move") as reader:
            half = self._read(reader, len(expected) // 2, 2, "move")
            with self._laws.of("move"):
                position = reader.collect() if hasattr(reader, "collect") else reader.snapshot()
        with self._reader(part, _copy(position), "move") as reader:
            got = half + self._read(reader, len(expected) - len(half), _LARGE, "move")
        self._laws.alike("move", f"part {short_repr(part)}, moved after {plural(len(half), 'record')}", expected, got)

    def _check_go_on(self, part: Any) -> None:
        __tracebackhide__ = True
        positions = self._positions[part]
        done, later = positions[len(positions) // 2]
        if not self._laws.has("go on"):
            return
        with self._reader(part, None, "go on") as reader:
            if not offers_own(reader, "go_on_from"):
                return
            self._read(reader, done // 2, 1, "go on") if done > 1 else []
            if self._passed(reader, later, done):
                return
            with self._laws.of("go on"):
                goes_on = reader.go_on_from(_copy(later))
            if goes_on:
                rest = self._expected[part][done:]
                got = self._read(reader, len(rest), _LARGE, "go on")
                self._laws.alike("go on", f"part {short_repr(part)}, gone on from {short_repr(later)}", rest, got)

    @staticmethod
    def _passed(reader: Any, later: Any, done: int) -> bool:
        """Whether a reader is at a later position already."""
        return done == 0 or likeness(reader.snapshot()) == likeness(later)

    def _check_committed(self, part: Any) -> None:
        __tracebackhide__ = True
        positions, expected = self._positions[part], self._expected[part]
        if not self._laws.has("committed"):
            return
        done, position = positions[len(positions) // 2]
        rest = expected[done:]
        with self._reader(part, None, "committed") as reader:
            if not offers_own(reader, "committed"):
                return
            before = self._read(reader, min(done + 1, len(expected)), 1, "committed")
            with self._laws.of("committed"):
                reader.committed(_copy(position))
                reader.committed(_copy(position))
            got = before + self._read(reader, len(expected) - len(before), _LARGE, "committed")
        what = f"part {short_repr(part)}, with {short_repr(position)} confirmed"
        self._laws.alike("committed", f"{what} while it was read", expected, got)
        with self._reader(part, _copy(position), "committed") as reader:
            with self._laws.of("committed"):
                reader.committed(_copy(position))
            got = self._read(reader, len(rest), _LARGE, "committed")
        self._laws.alike("committed", f"{what}, resumed there", rest, got)

    def check_restored(
        self,
        add_records: Callable[[int], object],
        copy_input: Callable[[], Callable[[], object]],
        added: int,
        *,
        is_amid: bool,
    ) -> None:
        """Restore the input to a copy without some records, add others, and check whether the source notices."""
        __tracebackhide__ = True
        with self._laws.of("restored"):
            present = self._present()
            put_back = copy_input()
            source = self._source()
            readers = self._continued(source, {part: source.build_part(part, None) for part in present})
            for part, reader in readers.items():
                self._read(reader, len(present[part]), _LARGE, "restored")
            earlier = {part: _copy(reader.snapshot()) for part, reader in readers.items()}
            add_records(_LOST)
            readers = self._continued(source, readers)
            self._read_more(readers, _LOST)
            positions = {part: _copy(reader.snapshot()) for part, reader in readers.items()}
            if not is_amid:
                for reader in readers.values():
                    _suspend(reader)
            put_back()
            add_records(added)
            now = self._present(sum(map(len, present.values())) + added)
        when = "during a run" if is_amid else "between two runs"
        for part, records in now.items():
            rest = records[len(present.get(part, ())) :]
            what = f"part {short_repr(part)}, after {_LOST} records were lost {when} and {added} were added,"
            reader = readers.get(part) if is_amid else None
            self._see_rest(what, part, reader, positions.get(part), rest)
            with self._reader(part, earlier.get(part), "restored") as reader:
                got = self._read(reader, len(rest), _LARGE, "restored")
            self._laws.alike("restored", f"{what} read from a position before the loss,", rest, got)

    def check_frozen(
        self, add_records: Callable[[int], object], freeze: Callable[[], AbstractContextManager[object]]
    ) -> None:
        """Poll while the external system does not answer: for a moment, and for longer than the source waits."""
        __tracebackhide__ = True
        source = self._source()
        with self._laws.of("frozen"):
            present = self._present()
            readers = {part: source.build_part(part, None) for part in present}
            for part, reader in readers.items():
                self._read(reader, len(present[part]), _LARGE, "frozen")
            with freeze():
                self._poll_for(_SHORTLY, readers)
            add_records(_LOST)
            self._read_more(readers, _LOST)
        with freeze():
            for part, reader in readers.items():
                is_content = False
                with suppress(Exception):  # the connector's error
                    self._poll_for(self._timeout, {part: reader})
                    is_content = True
                if is_content:
                    what = f"part {short_repr(part)} raised no error in {self._timeout:g} s while the system was frozen"
                    self._laws.broken("frozen", what)
        for reader in readers.values():
            _suspend(reader)

    @staticmethod
    def _poll_for(seconds: float, readers: Mapping[Any, Any]) -> None:
        """Poll readers that are at the end for some time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for reader in readers.values():
                reader.poll_batch(_LARGE) if hasattr(reader, "poll_batch") else poll_until(reader, _LARGE)
            time.sleep(_REST)

    def _present(self, total: int | None = None) -> dict[Any, list[Record]]:
        """Return all records by part, read by new readers."""
        total = total if total is not None else self._count
        source = self._source()
        found: dict[Any, list[Record]] = {part: [] for part in list_parts("source", source)}
        readers = {part: source.build_part(part, None) for part in found}
        try:
            deadline = time.monotonic() + self._timeout
            while not all(reader.is_finished() for reader in readers.values()):
                polled = {part: self._polled(reader, _LARGE, "restored") for part, reader in readers.items()}
                for part, records in polled.items():
                    found[part] += records
                if total is not None and sum(map(len, found.values())) >= total:
                    break
                if not any(polled.values()):
                    self._wait(deadline)
        finally:
            for reader in readers.values():
                _suspend(reader)
        return found

    def _continued(self, source: StatefulSource[Any, Any, Any, Any], readers: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return readers of all current parts; rebuild a finished one, as the next run would."""
        continued = dict(readers)
        for part in list_parts("source", source):
            reader = readers.get(part)
            if reader is None or reader.is_finished():
                position = None if reader is None else _copy(reader.snapshot())
                if reader is not None:
                    _suspend(reader)
                continued[part] = source.build_part(part, position)
        return continued

    def _read_more(self, readers: Mapping[Any, Any], count: int) -> None:
        deadline = time.monotonic() + self._timeout
        while count > 0:
            came = sum(len(self._polled(reader, _LARGE, "restored")) for reader in readers.values())
            count -= came
            if not came:
                self._wait(deadline)

    def _see_rest(self, what: str, part: Any, reader: Any, position: Any, rest: Sequence[Record]) -> None:
        """Check that a reader raises, or returns exactly these records."""
        __tracebackhide__ = True
        got: list[Record] = []
        deadline = time.monotonic() + self._timeout
        try:
            while True:
                try:
                    reader = reader if reader is not None else self._source().build_part(part, position)
                    values, stamps = (
                        reader.poll_batch(_LARGE) if hasattr(reader, "poll_batch") else poll_until(reader, _LARGE)
                    )
                except Exception:  # noqa: BLE001 - the connector's own
                    return
                got += zip(values, stamps, strict=True)
                if not len(values) and [likeness(it) for it in got] == [likeness(it) for it in rest]:
                    return
                if time.monotonic() > deadline:
                    self._laws.alike("restored", f"{what} and no error,", rest, got)
                if reader.is_finished() and not len(values):  # the next run continues
                    position = _copy(reader.snapshot())
                    _suspend(reader)
                    reader = None
                time.sleep(_REST)
        finally:
            if reader is not None:
                _suspend(reader)

    def _check_pickle(self, source: StatefulSource[Any, Any, Any, Any]) -> None:
        __tracebackhide__ = True
        with self._laws.of("pickle"):
            data = _dumps(source)
            sent = pickle.loads(data)  # noqa: S301 - just written
            for part, expected in list(self._expected.items())[:1]:
                reader = sent.build_part(part, None)
                try:
                    got = self._read(reader, len(expected), _LARGE, "pickle")
                finally:
                    _suspend(reader)
                self._laws.alike("pickle", f"part {short_repr(part)}, read by a copy", expected, got)

    def _check_runs(self) -> None:
        """Read in runs that are stopped after a snapshot, or killed after a later tick, on different workers."""
        __tracebackhide__ = True
        expected = {likeness(part): records for part, records in self._expected.items()}
        total = sum(map(len, expected.values()))
        files = MemoryFileSystem(skip_instance_cache=True)
        files.store, files.pseudo_dirs = {}, [""]  # instances share these by default
        job = _Job(self._source, FsspecBackend("/source", filesystem=files))
        deadline = time.monotonic() + self._timeout
        with self._laws.of("runs"):
            while job.kept < total:
                job.attempt(total, deadline)
                if time.monotonic() > deadline:
                    break
        if not getattr(self._source().impl, "keyed", True):
            everything = [it for records in expected.values() for it in records]
            seen = sorted(repr(likeness(it[1:])) for it in job.seen)
            self._laws.alike("runs", "the records of all runs", sorted(repr(likeness(it)) for it in everything), seen)
            return
        for part, records in self._expected.items():
            got = [it[1:] for it in job.seen if likeness(it[0]) == likeness(part)]
            self._laws.alike("runs", f"part {short_repr(part)}, over {job.attempts} runs", records, got)


class _Job:
    """Runs of a dataflow that only reads; `seen` has the records that snapshots cover."""

    def __init__(self, source: Callable[[], Any], backend: FsspecBackend) -> None:
        self.seen: list[tuple[Any, Any, Any]] = []
        self.kept = 0
        self.attempts = 0
        self._source = source
        self._backend = backend

    def attempt(self, total: int, deadline: float) -> None:
        """Rescale, run for a few ticks with a snapshot in between, and crash or stop."""
        workers = _WORKERS[self.attempts % len(_WORKERS)]
        sink: VecSink[Any, Any, Any] = VecSink()
        program = self._program(sink)
        self.attempts += 1
        ticks = 1 + self.attempts % 3
        with DrivenRun(program, parallelism=workers, persistence=self._backend) as run:
            run.resume()
            if self.attempts % 2:
                run.rescale(workers + 1)
            while not run.is_finished and time.monotonic() < deadline:
                if not run.tick():
                    time.sleep(_REST)
                    continue
                ticks -= 1
                if ticks <= 0 or self.kept + len(sink) >= total:
                    break
            run.snapshots.take(ending=True)
            self.seen += [(msg.key, msg.value, msg.timestamp) for msg in sink]
            self.kept = len(self.seen)
            if self.attempts % 2 and not run.is_finished:
                run.tick()  # its records are in no snapshot: the process is then killed

    def _program(self, sink: VecSink[Any, Any, Any]) -> Program:
        graph = Graph()
        StreamProvider(graph).new_stream().source("source", _Slow(self._source())).sink("seen", sink)
        return compile_graph(graph)


class _Slow(StatefulSourceImpl[Any, Any, Any, Any]):
    """A source that emits a few records each tick. Runs are thus interrupted before its end."""

    def __init__(self, source: StatefulSource[Any, Any, Any, Any]) -> None:
        self._source = source
        self.keyed = bool(getattr(source.impl, "keyed", True))  # type: ignore[misc] # as that one
        self.in_order = bool(getattr(source.impl, "in_order", False))

    def list_parts(self) -> Any:
        """Return the parts of the source."""
        return self._source.impl.list_parts()

    def build_part(self, part: Any, state: Any) -> Any:
        """Return a slow reader."""
        return _SlowReader(self._source.build_part(part, state))


class _SlowReader:
    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def poll_batch(self, limit: int) -> Any:
        limit = min(limit, 2)
        return (
            self._reader.poll_batch(limit) if hasattr(self._reader, "poll_batch") else poll_until(self._reader, limit)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


def _copy(position: Any) -> Any:
    """Return a position as it is restored from a snapshot."""
    return pickle.loads(pickle.dumps(position, 5))  # noqa: S301 - just written


def _dumps(source: Any) -> bytes:
    with suppress(ImportError):
        import cloudpickle  # noqa: PLC0415 - as on Spark, where it is part of pyspark

        data: bytes = cloudpickle.dumps(source, 5)
        return data
    return pickle.dumps(source, 5)


def _suspend(reader: Any) -> None:
    if hasattr(reader, "suspend"):
        reader.suspend()
