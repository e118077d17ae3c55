"""The suite for transactional sinks: whether each transaction becomes visible once and whole, whatever happens."""

from __future__ import annotations

import secrets as chance
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from fsspec.implementations.memory import MemoryFileSystem

from malflow.checks import checked_wait
from malflow.connectors.by_name import Connection
from malflow.durations import Duration
from malflow.errors import FencedError, GraphError
from malflow.message import DataMessage
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.sinks.contract import StatelessSink
from malflow.sinks.transactional import SinkOwner, TransactionalSinkImpl, is_transactional
from malflow.snapshot.backend import FsspecBackend
from malflow.streams.stream import StreamProvider
from malflow.testing.faults import Crash
from malflow.testing.laws import Laws, in_a_thread, likeness
from malflow.testing.refusal_laws import REFUSAL_LAWS, check_refusals
from malflow.testing.scripted import PAUSE, ScriptedSource
from malflow.testing.share_laws import SHARE_LAWS, check_shares
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.testing.value_laws import SinkValues

__all__ = ["SINK_LAWS", "assert_sink"]

SINK_LAWS: Final = (
    "invisible",
    "visible",
    "empty",
    "handles",
    "idempotent",
    "several",
    "heir",
    "ledger",
    "abort",
    "keep",
    "close",
    "others",
    "zombie",
    "stale",
    "restored",
    "frozen",
    "crashes",
    "secrets",
    "values",
    *SHARE_LAWS,
    *REFUSAL_LAWS,
)

_EACH_TICK = timedelta(microseconds=1)
_SIZE = 6
"""Records of a job with a crash: several transactions. More: slower; fewer: some points of a crash are not reached."""

_RECORDS = 20
"""Records of a transaction with refusals. More: slower; fewer: less to search for the refused ones."""

_MOST_ATTEMPTS = 50
"""Restarts until a job counts as stuck. Fewer: slow recoveries fail; more: a hopeless one takes longer."""

_SHORTLY = 0.5
"""Seconds that a system is frozen. Less: the call may not have begun; more: a slower test."""

_CLAIM, _NEXT = 9, 10
"""Claims of a run and the next one; as texts they would sort in the opposite order."""

_LAST = 2
"""The last of the two transactions that the restored copy may have."""

_RETURNS: Final = ((0, True), (1, True), (1, False), (_LAST, True), (_LAST, False))
"""How many of two transactions the restored copy has, and whether a run is then within its third transaction."""

CRASHES: Final = (("fence", 1), ("abort", 1), ("prepare", 1), ("prepare", 3), ("commit", 1), ("commit", 2))
"""The calls at which a job crashes, and whether before or after them."""


def assert_sink(
    make_sink: Callable[[], Any],
    read_back: Callable[[], Iterable[Any]],
    *,
    make_value: Callable[[int], Any] = lambda number: number,
    copy_output: Callable[[], Callable[[], None]] | None = None,
    freeze: Callable[[], AbstractContextManager[object]] | None = None,
    timeout: Duration = 30.0,
    refuse: Callable[[int], Any] | None = None,
    mend: Callable[[], object] | None = None,
    without: Collection[str] = (),
    secrets: Sequence[str] = (),
    values: Iterable[SinkValues] = (),
) -> None:
    """Check that a transactional sink keeps the laws of the contract. Its output is then exactly-once.

    Each law has its own job and its own values, but all laws write to the same external system. The laws:

    - ``invisible``: values that were written, or prepared, are not visible before they are committed.
    - ``visible``: a committed transaction is visible, each value once.
    - ``empty``: `prepare` returns None if nothing was written since the last one.
    - ``handles``: a handle can be pickled, and is not changed afterwards.
    - ``idempotent``: committing again, by this object or the next run's, changes nothing.
    - ``several``: several prepared transactions are committed by one call, also if the first was committed before.
    - ``heir``: the next run's object commits the transactions prepared by an object that is gone, and continues.
    - ``ledger``: `fence` returns the number of the last committed transaction, zero if there is none, or None.
    - ``abort``: values that were written or prepared, but not kept, never become visible.
    - ``keep``: `abort` keeps the handles in its argument; they can be committed afterwards.
    - ``close``: `close` neither commits nor drops prepared transactions, and the object can be fenced and used again.
    - ``others``: another sink of the same job, with the same target, has its own transactions.
    - ``zombie``: once a run with a higher claim has fenced, an object of a former run makes nothing visible.
    - ``stale``: `fence` with a lower claim raises, and does no harm to the run with the higher claim.
    - ``restored``: checked if `copy_output` is passed. Once the output has returned to a state before the last
      committed transaction, during a run or between two, the next `commit` raises, as does each `fence` by an owner
      that knows of the transaction: later transactions must not hide the gap. If nothing was lost, the sink continues.
    - ``frozen``: checked if `freeze` is passed. A commit to an external system that does not answer raises within
      `timeout`, or succeeds if the system answers again soon; the next run writes each value once.
    - ``crashes``: a job that crashes before and after each call writes each value once; no transaction is ever visible
      in part.
    - ``secrets``: none of `secrets` is in a handle or in the ``repr`` of a sink.
    - ``values``: checked if `values` is passed. Each generated value of each kind of cell is equal when another program
      reads it, or refused before the snapshot by an error that names it, or changed as a line of the docs says.

    For a `malflow.sinks.DistributedSinkImpl` also:

    - ``pieces``: the object can be pickled after `fence`, and a piece as well; `encode` makes nothing visible.
    - ``shares``: a transaction of several shares, written by copies of the object, is visible once.
    - ``repeated``: of a share that was sealed twice, only the one in the handle becomes visible; `abort` keeps shares
      in its argument, and drops the others.
    - ``late``: a share that is sealed once the next run has fenced, or once its own transaction is committed, never
      becomes visible.

    Checked if `refuse` is passed, with a policy ``on_error=`` of the job, and crashes at each call in between:

    - ``refused``: if the external system refuses one record, a tenth or all, the others are visible once, and those
      are dead letters, as many as there are.
    - ``fails``: with ``on_error="fail"``, or more refused records than the budget, each start raises.
    - ``replayed``: once `mend` was called, a replay of the dead letters makes each value visible once.

    Args:
        make_sink: returns a new sink with the same target: an implementation, a `StatelessSink`, or a result of
            `malflow.connect`. Its delivery is exactly-once.
        read_back: returns all values that are visible in the external system, as returned by `make_value`, in any
            order.
        make_value: returns the value of a record by its number; different numbers must have different values. The
            number is the record's key and timestamp.
        copy_output: copies the output with its ledger (everything that the external system keeps for this sink), and
            returns a function that replaces the current output by this copy, as a restored backup, a promoted standby
            or an older disk does. For example, copy a folder and move it back; stop a server, replace its data, and
            start it.
        freeze: returns a context in which the external system is suspended: connections stay open, without an answer.
        timeout: the maximum time until a frozen system is given up.
        refuse: returns the value of a record by its number that the external system refuses for good.
        mend: makes the external system accept these values; called once, after all other laws.
        without: the laws not to check.
        secrets: texts that may not be shown, such as passwords.
        values: the kinds of cells that the sink writes, each with its values and an independent reader.

    Raises:
        AssertionError: if a law is broken; the message names the first.
        GraphError: if it is not a transactional sink, or `without` has an unknown law.
    """
    __tracebackhide__ = True
    laws = Laws("assert_sink", SINK_LAWS, without, secrets)
    suite = _SinkSuite(make_sink, read_back, make_value, copy_output, laws)
    try:
        suite.check()
        if freeze is not None and laws.has("frozen"):
            suite.check_frozen(freeze, checked_wait("assert_sink", timeout))
        if refuse is not None:
            suite.check_refusals(refuse, mend)
    finally:
        suite.close()
    if laws.has("values"):
        for kind in values:
            kind.check()


class _SinkSuite:
    def __init__(
        self,
        make_sink: Callable[[], Any],
        read_back: Callable[[], Iterable[Any]],
        make_value: Callable[[int], Any],
        copy_output: Callable[[], Callable[[], None]] | None,
        laws: Laws,
    ) -> None:
        self._make = make_sink
        self._read_back = read_back
        self._make_value = make_value
        self._copy_output = copy_output
        self._laws = laws
        self._numbers = count(1)
        self._made: list[Any] = []
        self._live: list[tuple[Any, Any]] = []
        self._run = chance.token_hex(3)

    def close(self) -> None:
        """Close every object that was built, including crashed ones."""
        for sink in self._made:
            if hasattr(sink, "close"):
                with suppress(Exception):  # a zombie may fail to close
                    sink.close()

    def check(self) -> None:
        """Check the laws, the basic ones first."""
        __tracebackhide__ = True
        self._laws.hide("the repr of the sink", repr(self._sink()))
        for law in (self._commit, self._several, self._heir, self._abort):
            law()
        for name, law in (
            ("keep", self._keep),
            ("close", self._close),
            ("others", self._others),
            ("zombie", self._zombie),
            ("stale", self._stale),
            ("restored", self._restore_all),
        ):
            if self._laws.has(name):
                law()
        if self._laws.has("shares"):
            check_shares(_Shared(self), self._laws)
        for handle, before in self._live:
            if self._laws.has("handles") and likeness(handle) != before:
                self._laws.broken("handles", f"the handle {short_repr(handle)} was changed after prepare() returned it")
        if self._laws.has("crashes"):
            for call, nth in CRASHES:
                for when in ("before", "after"):
                    self._crash(call, when, nth)

    def _sink(self) -> Any:
        made = self._make()
        if isinstance(made, Connection):
            made = made.sink()
        impl = made.impl if isinstance(made, StatelessSink) else made
        if not is_transactional(impl):
            raise GraphError(f"assert_sink needs a sink that delivers exactly once; got {short_repr(made)}")
        self._made.append(impl)
        return impl

    def _fenced(self, law: str, name: str, claim: int) -> tuple[Any, int | None]:
        """Return a new object that has taken over, and the result of its `fence`."""
        __tracebackhide__ = True
        sink = self._sink()
        with self._laws.of(law):
            return sink, sink.fence(self._owner(name, claim))

    def _begun(self, law: str, name: str, claim: int = _CLAIM, keep: Sequence[Any] = ()) -> Any:
        """Return a new object that has taken over, and aborted everything but `keep`."""
        __tracebackhide__ = True
        sink, _ = self._fenced(law, name, claim)
        with self._laws.of(law):
            sink.abort(list(keep))
        return sink

    def _owner(self, name: str, claim: int, sink: str = "out", transaction: int = 0) -> SinkOwner:
        return SinkOwner(f"law-{name}-{self._run}", sink, claim, transaction)

    def _write(self, law: str, sink: Any, size: int = 3) -> list[Any]:
        """Write some values, each under its number as the key; return them."""
        __tracebackhide__ = True
        numbers = [next(self._numbers) for _ in range(size)]
        values = [self._make_value(number) for number in numbers]
        with self._laws.of(law):
            for part in (slice(1), slice(1, None)):
                _write_batch(sink, numbers[part], values[part], numbers[part])
                if hasattr(sink, "flush"):
                    sink.flush()
        return values

    def _prepare(self, law: str, sink: Any, transaction: int) -> Any:
        __tracebackhide__ = True
        with self._laws.of(law):
            handle = sink.prepare(transaction)
        self._live.append((handle, likeness(handle)))
        if handle is None:
            self._laws.broken(law, f"prepare({transaction}) returned None, though values were written")
        return self._laws.pickled("handles", handle, f"the handle {short_repr(handle)}")

    def _commit_all(self, law: str, sink: Any, handles: Sequence[Any]) -> None:
        __tracebackhide__ = True
        with self._laws.of(law):
            sink.commit(list(handles))

    def _see(self, law: str, when: str, values: Sequence[Any], times: int) -> None:
        """Check that each of these values is visible `times` times."""
        __tracebackhide__ = True
        if not self._laws.has(law):
            return
        seen = self._visible(law)
        for value in values:
            found = seen.count(likeness(value))
            if found != times:
                what = f"value {short_repr(value)} is visible {found} times"
                self._laws.broken(law, f"{when}, {what}, expected {times}")

    def _visible(self, law: str) -> list[Any]:
        with self._laws.of(law):
            return [likeness(value) for value in self._read_back()]

    def _commit(self) -> None:
        __tracebackhide__ = True
        sink, last = self._fenced("ledger", "commit", _CLAIM)
        if last not in (0, None) and self._laws.has("ledger"):
            self._laws.broken("ledger", f"fence() of a new job returned {short_repr(last)}, instead of 0 or None")
        with self._laws.of("abort"):
            sink.abort([])
        if self._laws.has("empty"):
            with self._laws.of("empty"):
                handle = sink.prepare(1)
            if handle is not None:
                self._laws.broken("empty", f"prepare() returned {short_repr(handle)}, though nothing was written")
        values = self._write("visible", sink)
        self._see("invisible", "before prepare()", values, 0)
        handle = self._prepare("visible", sink, 1)
        self._see("invisible", "after prepare()", values, 0)
        self._commit_all("visible", sink, [handle])
        self._see("visible", "after commit()", values, 1)
        if self._laws.has("idempotent"):
            self._commit_all("idempotent", sink, [handle])
            self._see("idempotent", "after a second commit()", values, 1)
        heir, last = self._fenced("ledger", "commit", _NEXT)
        if last not in (1, None) and self._laws.has("ledger"):
            self._laws.broken("ledger", f"fence() returned {short_repr(last)} after transaction 1, not 1 or None")
        if self._laws.has("idempotent"):
            self._commit_all("idempotent", heir, [handle])
            with self._laws.of("abort"):
                heir.abort([])
            self._see("idempotent", "after a commit() by the next run", values, 1)

    def _several(self) -> None:
        __tracebackhide__ = True
        sink, handles, values = self._begun("several", "several"), [], []
        for transaction in (8, 9, 10):
            values.append(self._write("several", sink))
            handles.append(self._prepare("several", sink, transaction))
        self._see("invisible", "after three transactions were prepared", [it for them in values for it in them], 0)
        self._commit_all("several", sink, handles[:1])
        self._see("several", "after the first of three transactions was committed", values[0], 1)
        self._see("several", "after the first of three transactions was committed", values[1] + values[2], 0)
        more = self._write("several", sink)
        self._commit_all("several", sink, handles)
        self._see("several", "after three transactions were committed", [it for them in values for it in them], 1)
        self._see("invisible", "after the earlier transactions were committed", more, 0)
        self._commit_all("several", sink, [self._prepare("several", sink, 12)])
        self._see(
            "several",
            "after a fourth transaction, whose number is not the next,",
            [it for them in (*values, more) for it in them],
            1,
        )

    def _heir(self) -> None:
        __tracebackhide__ = True
        gone = self._begun("heir", "heir")
        values = self._write("heir", gone)
        handle = self._prepare("heir", gone, 1)
        lost = self._write("heir", gone)
        heir, last = self._fenced("heir", "heir", _NEXT)
        if last not in (0, None) and self._laws.has("ledger"):
            self._laws.broken("ledger", f"fence() returned {short_repr(last)} before the first commit()")
        self._commit_all("heir", heir, [handle])
        with self._laws.of("heir"):
            heir.abort([])
        self._see("heir", "after the next run's commit()", values, 1)
        again = self._write("heir", heir)
        self._commit_all("heir", heir, [self._prepare("heir", heir, 2)])
        self._see("heir", "after the next run's second transaction", [*values, *again], 1)
        self._see("abort", "after the next run has taken over", lost, 0)

    def _abort(self) -> None:
        __tracebackhide__ = True
        gone = self._begun("abort", "abort")
        prepared = self._write("abort", gone)
        self._prepare("abort", gone, 1)
        written = self._write("abort", gone)
        heir = self._begun("abort", "abort", _NEXT)
        values = self._write("abort", heir)
        self._commit_all("abort", heir, [self._prepare("abort", heir, 1)])
        self._see("abort", "after the next run has written the transaction again", values, 1)
        self._see("abort", "though the next run aborted it", [*prepared, *written], 0)
        dropped = self._write("abort", heir)
        with self._laws.of("abort"):
            heir.abort([])
        values = self._write("abort", heir)
        self._commit_all("abort", heir, [self._prepare("abort", heir, 2)])
        self._see("abort", "after an abort() during a transaction", values, 1)
        self._see("abort", "though it was written before an abort()", dropped, 0)

    def _keep(self) -> None:
        __tracebackhide__ = True
        gone = self._begun("keep", "keep")
        values, handles = [], []
        for transaction in (1, 2):
            values += self._write("keep", gone)
            handles.append(self._prepare("keep", gone, transaction))
        heir = self._begun("keep", "keep", _NEXT, handles)
        self._see("invisible", "after an abort() that keeps it", values, 0)
        self._commit_all("keep", heir, handles)
        self._see("keep", "after a commit() of a handle that abort() has kept", values, 1)

    def _close(self) -> None:
        __tracebackhide__ = True
        sink = self._begun("close", "close")
        values = self._write("close", sink)
        handle = self._prepare("close", sink, 1)
        lost = self._write("close", sink)
        with self._laws.of("close"):
            if hasattr(sink, "close"):
                sink.close()
        self._see("close", "after close()", [*values, *lost], 0)
        with self._laws.of("close"):
            sink.fence(self._owner("close", _NEXT))
        self._commit_all("close", sink, [handle])
        with self._laws.of("close"):
            sink.abort([])
        self._see("close", "after close(), fence() and commit()", values, 1)
        again = self._write("close", sink)
        self._commit_all("close", sink, [self._prepare("close", sink, 2)])
        self._see("close", "after a transaction of an object that was closed before", again, 1)
        self._see("close", "though it was not prepared before close()", lost, 0)

    def _others(self) -> None:
        __tracebackhide__ = True
        other = self._sink()
        with self._laws.of("others"):
            other.fence(self._owner("others", _CLAIM, "other"))
            other.abort([])
        values = self._write("others", other)
        handle = self._prepare("others", other, 1)
        sink = self._begun("others", "others", _NEXT)
        mine = self._write("others", sink)
        self._commit_all("others", sink, [self._prepare("others", sink, 2)])
        self._see("others", "after a commit() by another sink of the job", values, 0)
        self._commit_all("others", other, [handle])
        self._see("others", "after both sinks of a job have committed", [*mine, *values], 1)

    def _zombie(self) -> None:
        __tracebackhide__ = True
        zombie = self._begun("zombie", "zombie")
        prepared = self._write("zombie", zombie)
        handle = self._prepare("zombie", zombie, 1)
        heir = self._begun("zombie", "zombie", _NEXT)
        self._try(zombie, handle)
        self._see("zombie", "after the former run's commit()", prepared, 0)
        values = self._write("zombie", heir)
        mine = self._prepare("zombie", heir, 2)
        number = next(self._numbers)
        more = [self._make_value(number)]
        with suppress(Exception):  # it may fail anywhere
            _write_batch(zombie, [number], more, [number])
            late = zombie.prepare(2)
            self._try(zombie, late)
            zombie.commit([handle, late])
        self._see("zombie", "after the former run continued to write", [*prepared, *more], 0)
        self._commit_all("zombie", heir, [mine])
        self._see("zombie", "after the current run's commit()", values, 1)
        self._try(zombie, handle)
        self._see("zombie", "after the former run's last commit()", [*prepared, *more], 0)
        self._see("zombie", "after the former run's last commit()", values, 1)

    @staticmethod
    def _try(zombie: Any, handle: Any) -> None:
        with suppress(Exception):  # it should raise, but need not
            zombie.commit([handle])

    def _stale(self) -> None:
        __tracebackhide__ = True
        present = self._begun("stale", "stale", _NEXT)
        values = self._write("stale", present)
        handle = self._prepare("stale", present, 1)
        more = self._write("stale", present)
        stale = self._sink()
        refused = False
        try:
            stale.fence(self._owner("stale", _CLAIM))
        except Exception:  # noqa: BLE001 - FencedError, or the client's own
            refused = True
        if not refused:
            self._laws.broken("stale", f"fence() with claim {_CLAIM} was accepted after one with claim {_NEXT}")
        self._commit_all("stale", present, [handle, self._prepare("stale", present, 2)])
        self._see("stale", "after a run with a lower claim tried to take over", [*values, *more], 1)

    def _restore_all(self) -> None:
        """Check the sink after each return of the output to an earlier state."""
        __tracebackhide__ = True
        if self._copy_output is not None:
            for kept, is_amid in _RETURNS:
                self._restore(self._copy_output, kept, is_amid=is_amid)

    def _restore(self, copy_output: Callable[[], Callable[[], None]], kept: int, *, is_amid: bool) -> None:
        """Restore the output to a copy with some of two transactions, and check whether the sink notices."""
        __tracebackhide__ = True
        name, after = f"restored-{kept}-{is_amid}", f"after a copy with {kept} of 2 transactions was restored"
        is_lost = kept < _LAST
        sink, known = self._begun("restored", name), _LAST
        put_back = copy_output()
        for transaction in range(1, _LAST + 1):
            self._write("restored", sink)
            self._commit_all("restored", sink, [self._prepare("restored", sink, transaction)])
            put_back = copy_output() if transaction == kept else put_back
        if is_amid:
            values = self._write("restored", sink)
            handle = self._prepare("restored", sink, _LAST + 1)
            (put_back if is_lost else copy_output())()
            self._notice(f"commit() of a third, {after} during a run,", lambda: sink.commit([handle]), is_lost=is_lost)
            self._see("restored", f"{after} and a third was committed", values, int(not is_lost))
            known += int(not is_lost)
        else:
            if hasattr(sink, "close"):
                sink.close()
            put_back()
        owner = self._owner(name, _NEXT, transaction=known)
        self._notice(f"fence() of the next run, {after},", lambda: self._sink().fence(owner), is_lost=is_lost)

    def check_frozen(self, freeze: Callable[[], AbstractContextManager[object]], timeout: float) -> None:
        """Commit while the external system does not answer: for a moment, and for longer than the sink waits."""
        __tracebackhide__ = True
        sink = self._begun("frozen", "frozen")
        values = self._write("frozen", sink)
        handle = self._prepare("frozen", sink, 1)
        with freeze():
            done = in_a_thread(lambda: sink.commit([handle]))
            time.sleep(_SHORTLY)
        with self._laws.of("frozen"):
            done.result(timeout)
        self._see("frozen", "after a commit to a system that was frozen for a moment", values, 1)
        values = self._write("frozen", sink)
        handle = self._prepare("frozen", sink, 2)
        with freeze():
            done = in_a_thread(lambda: sink.commit([handle]))
            try:
                raised = done.exception(timeout)
            except TimeoutError:
                raised = None
            if raised is None:
                self._laws.broken("frozen", f"commit() raised no error in {timeout:g} s while the system was frozen")
        after = self._begun("frozen", "frozen", _NEXT, [handle])
        self._commit_all("frozen", after, [handle])
        self._see("frozen", "after the system was frozen, and the next run committed", values, 1)

    def check_refusals(self, refuse: Callable[[int], Any], mend: Callable[[], object] | None) -> None:
        """Run jobs with some records that the external system refuses."""
        __tracebackhide__ = True

        def values(at: Sequence[int]) -> tuple[list[Any], list[Any]]:
            numbers = [next(self._numbers) for _ in range(_RECORDS)]
            made = [refuse(it) if place in at else self._make_value(it) for place, it in enumerate(numbers)]
            return made, [made[place] for place in at]

        check_refusals(self._laws, self._run, self._sink, self._see, values, mend)

    def _notice(self, what: str, call: Callable[[], Any], *, is_lost: bool) -> None:
        """Check that a call raises if, and only if, transactions are lost; the error must not be a `FencedError`."""
        __tracebackhide__ = True
        if not is_lost:
            with self._laws.of("restored"):
                call()
            return
        try:
            call()
        except FencedError as error:
            self._laws.broken("restored", f"{what} said that another run has the output: {error}")
        except Exception:  # noqa: BLE001 - the connector's own
            return
        self._laws.broken("restored", f"{what} raised no error, though a committed transaction is lost")

    def _crash(self, call: str, when: str, nth: int) -> None:
        """Run a job that crashes at a call, and restart it until it ends."""
        __tracebackhide__ = True
        where = f"a crash {when} call {nth} of {call}()"
        numbers = [next(self._numbers) for _ in range(_SIZE)]
        files = MemoryFileSystem(skip_instance_cache=True)
        files.store, files.pseudo_dirs = {}, [""]  # instances share these by default
        backend = FsspecBackend("/sink", filesystem=files, job=f"crash-{self._run}-{call}-{when}-{nth}")
        transactions: dict[int, list[Any]] = {}
        plan = _Plan(call, when, nth)
        for _ in range(_MOST_ATTEMPTS):
            sink = _CrashingSink(self._sink(), plan, transactions)

            def build(provider: StreamProvider, sink: Any = sink) -> None:
                script = [item for number in numbers for item in (number, PAUSE)]
                source = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
                keyed = source.key_distribute("number", lambda msg: msg.value)
                keyed.map("value", self._make_value).sink("out", sink)

            try:
                with self._laws.of("crashes"):
                    SingleThreadRuntime(build, backend, _EACH_TICK).execute()
            except Crash:
                self._see_whole(where, transactions)
                continue
            break
        self._see("crashes", f"after {where}", [self._make_value(number) for number in numbers], 1)

    def _see_whole(self, where: str, transactions: dict[int, list[Any]]) -> None:
        """Check that each transaction is visible as a whole or not at all."""
        __tracebackhide__ = True
        seen = self._visible("crashes")
        for number, values in transactions.items():
            times = {seen.count(likeness(value)) for value in values}
            if times - {0, 1} or len(times) > 1:
                self._laws.broken("crashes", f"after {where}, transaction {number} is visible in part, or twice")


class _Shared:
    """The calls that the laws of distributed sinks need."""

    def __init__(self, suite: _SinkSuite) -> None:
        self._suite = suite
        self.commit_all = suite._commit_all  # noqa: SLF001 - of this module
        self.see = suite._see  # noqa: SLF001 - as above

    def begun(self, law: str, name: str, *, heir: bool = False, keep: Sequence[Any] = ()) -> Any:
        __tracebackhide__ = True
        return self._suite._begun(law, name, _NEXT if heir else _CLAIM, keep)  # noqa: SLF001 - as above

    def new_values(self, size: int = 3) -> tuple[list[int], list[Any]]:
        numbers = [next(self._suite._numbers) for _ in range(size)]  # noqa: SLF001 - as above
        return numbers, [self._suite._make_value(number) for number in numbers]  # noqa: SLF001 - as above


class _Plan:
    """Where to crash, once."""

    def __init__(self, call: str, when: str, nth: int) -> None:
        self._point = call, when
        self._left = nth

    def pass_by(self, call: str, when: str) -> None:
        if self._point == (call, when):
            self._left -= 1
            if self._left == 0:
                raise Crash(f"{when} {call}")


class _CrashingSink(TransactionalSinkImpl[Any, Any, Any, Any]):
    """Forward calls to a sink, and crash according to a plan; never close the sink, as if the process were killed.

    Args:
        sink: the sink.
        plan: the call at which to crash.
        transactions: receives the values of each prepared transaction.
    """

    def __init__(self, sink: Any, plan: _Plan, transactions: dict[int, list[Any]]) -> None:
        self._sink = sink
        self._plan = plan
        self._transactions = transactions
        self._values: list[Any] = []

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        self._values.append(msg.value)
        self._sink.sink(msg)

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        self._values += values
        _write_batch(self._sink, keys, values, timestamps)

    def flush(self) -> None:
        if hasattr(self._sink, "flush"):
            self._sink.flush()

    def fence(self, owner: SinkOwner) -> int | None:
        with self._at("fence"):
            last: int | None = self._sink.fence(owner)
        return last

    def prepare(self, transaction: int) -> Any:
        with self._at("prepare"):
            self._transactions[transaction], self._values = self._values, []
            return self._sink.prepare(transaction)

    def commit(self, handles: Sequence[Any]) -> None:
        with self._at("commit"):
            self._sink.commit(handles)

    def abort(self, keep: Sequence[Any]) -> None:
        with self._at("abort"):
            self._values = []
            self._sink.abort(keep)

    @contextmanager
    def _at(self, call: str) -> Iterator[None]:
        self._plan.pass_by(call, "before")
        yield
        self._plan.pass_by(call, "after")


def _write_batch(sink: Any, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
    if hasattr(sink, "sink_batch"):
        sink.sink_batch(list(keys), list(values), list(timestamps))
        return
    for key, value, timestamp in zip(keys, values, timestamps, strict=True):
        sink.sink(DataMessage(key, value, timestamp))
