"""The law of values: each is equal for an independent reader, or refused in time by name, or a change is documented.

A table of values has one row for each kind of cell of an external system: its columns' types, its keys, its codecs. For
each kind, values are generated and written, or read, in lists of random length, after those that are checked each time.
If a list is refused, its halves are tried: so each value is tried alone, and together with others.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from malflow.checks import checked_wait
from malflow.connectors.by_name import Connection
from malflow.durations import Duration
from malflow.message import DataMessage
from malflow.operators.hosting.parts import list_parts
from malflow.sinks.contract import StatelessSink
from malflow.sinks.distributed import Share, is_distributed, new_token
from malflow.sinks.transactional import SinkOwner, is_transactional
from malflow.sources.contract import StatefulSource, poll_until
from malflow.testing.laws import Laws
from malflow.testing.value_strategies import python_values, same_value
from malflow.words import error_line, error_text, short_repr

__all__ = ["SinkValues", "SourceValues"]

_LAW: Final = "values"
_MOST = 8
"""The largest number of values that are written or read together."""

_SHOWN = 16
"""How many characters of a value an error must have to name it."""

_LEAST_EXAMPLES, _PART_OF_PROFILE = 5, 5
_LARGE = 1000
"""A poll limit above the records of a test, so that the reader may return all of them at once."""

_REST = 0.002
"""Seconds between two polls without records. Less: more processor time; more: a slower test."""


@dataclass(frozen=True)
class SinkValues:
    """A kind of cell that a sink writes, and how to read it without the sink's connector.

    Args:
        name: the kind of cell, for messages, such as ``numeric(6, 2)``.
        make_sink: returns a new sink that writes such cells: as for `assert_sink`, or one that is at-least-once.
        read: returns all cells by the numbers of their records, as another program reads them: a client of another
            vendor, or a text that the system writes.
        values: a strategy of values. `python_values()` should be a part of it.
        always: values that are checked each time, before the generated ones: those that were wrong once.
        make_record: returns the record of a number and a value; the number is also the record's key and timestamp.
        same: whether a written value and a cell that was read are equal.
        changes: what a cell becomes where it is not equal: for each line of the documentation, a function that returns
            the value that is read for a written one; or the written one, if the line is not about it.
        docs: the pages that must have these lines. White space does not count.
        names: whether the text of an error names a value; by default, whether it has the beginning of its ``repr`` or
            ``str``.
        examples: the number of lists to try; None: a fifth of the active profile's.
    """

    name: str
    make_sink: Callable[[], Any]
    read: Callable[[], Mapping[int, Any]]
    values: st.SearchStrategy[Any] = field(default_factory=python_values)
    make_record: Callable[[int, Any], Any] = lambda number, value: {"n": number, "v": value}
    same: Callable[[Any, Any], bool] = same_value
    changes: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    docs: Iterable[Path] = ()
    names: Callable[[Any, str], bool] | None = None
    examples: int | None = None
    always: Sequence[Any] = ()

    def check(self) -> None:
        """Check that each value is equal when it is read, or refused before the snapshot by an error that names it.

        Raises:
            AssertionError: if one is not; the message begins as in `assert_sink`.
        """
        __tracebackhide__ = True
        judge = _Judge("assert_sink", self.name, self.same, self.changes, self.docs, self.names or _names)
        writer = _Writer(self, judge)
        try:
            judge.check_known(self.always, writer.check, (False, True))
            judge.check_lists(self.values, writer.check, self.examples)
        finally:
            writer.close()


@dataclass(frozen=True)
class SourceValues:
    """A kind of cell that a source reads, and how to write it without the source's connector.

    Args:
        name: the kind of cell, for messages.
        make_source: returns a new source of the cells: as for `assert_source`.
        write: replaces all records of the external system by records of these values, numbered from 0.
        values: a strategy of values in the form that `write` takes, such as the system's own text.
        always: as for `SinkValues`.
        cell: returns the number and the value of a record that was read.
        same: whether a value as `write` takes it, and one that was read, are equal.
        changes: as for `SinkValues`.
        docs: as for `SinkValues`.
        names: as for `SinkValues`.
        timeout: the maximum time to wait for the records.
        examples: the number of lists to try; None: a fifth of the active profile's.
    """

    name: str
    make_source: Callable[[], Any]
    write: Callable[[Sequence[Any]], object]
    values: st.SearchStrategy[Any] = field(default_factory=python_values)
    cell: Callable[[Any], tuple[int, Any]] = lambda record: (record["n"], record["v"])
    same: Callable[[Any, Any], bool] = same_value
    changes: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    docs: Iterable[Path] = ()
    names: Callable[[Any, str], bool] | None = None
    timeout: Duration = 30.0
    examples: int | None = None
    always: Sequence[Any] = ()

    def check(self) -> None:
        """Check that each value is read as it was written, or refused by an error that names it.

        Raises:
            AssertionError: if one is not; the message begins as in `assert_source`.
        """
        __tracebackhide__ = True
        judge = _Judge("assert_source", self.name, self.same, self.changes, self.docs, self.names or _names)
        reader = _Reader(self, judge)
        judge.check_known(self.always, reader.check, (False,))
        judge.check_lists(self.values, reader.check, self.examples)


class _Judge:
    """What becomes of values, compared with what may."""

    def __init__(
        self,
        suite: str,
        kind: str,
        same: Callable[[Any, Any], bool],
        changes: Mapping[str, Callable[[Any], Any]],
        docs: Iterable[Path],
        names: Callable[[Any, str], bool],
    ) -> None:
        self._laws = Laws(suite, (_LAW,), (), ())
        self._kind, self._same, self._changes, self._names = kind, same, changes, names
        pages = " ".join(path.read_text() for path in docs)
        for line in changes:
            if _unspaced(line) not in _unspaced(pages):
                self.broken(f"no page has the line {line!r}")

    def check_known(
        self, values: Sequence[Any], check: Callable[[list[Any], bool], None], ways: Sequence[bool]
    ) -> None:
        """Check values in their order, by each of the ways."""
        __tracebackhide__ = True
        for way in ways:
            for at in range(0, len(values), _MOST):
                check(list(values[at : at + _MOST]), way)

    def check_lists(
        self, values: st.SearchStrategy[Any], check: Callable[[list[Any], bool], None], examples: int | None
    ) -> None:
        """Check generated lists of values; a truth that is generated with each chooses the way that they take."""
        __tracebackhide__ = True
        most = examples or max(_LEAST_EXAMPLES, settings().max_examples // _PART_OF_PROFILE)

        @settings(
            max_examples=most,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(values, min_size=1, max_size=_MOST), st.booleans())
        def each(some: list[Any], way: bool) -> None:
            check(some, way)

        with warnings.catch_warnings():  # the text of a rejected strategy is long
            warnings.filterwarnings("ignore", "Generating overly large repr")
            each()

    def broken(self, what: str) -> None:
        """Raise the error."""
        __tracebackhide__ = True
        self._laws.broken(_LAW, f"{self._kind}: {what}")

    def check_refusal(self, values: Sequence[Any], error: Exception) -> None:
        """Check that an error names one of the values."""
        __tracebackhide__ = True
        text = error_line(error)
        if not any(self._names(value, text) for value in values):
            shown = ", ".join(map(short_repr, values))
            self.broken(f"the error names none of the refused values {shown}: {text}")

    def check_cells(self, values: Mapping[int, Any], cells: Mapping[int, Any]) -> None:
        """Check that the cells that were read are those that were written."""
        __tracebackhide__ = True
        for number, value in values.items():
            if number not in cells:
                self.broken(f"{short_repr(value)} is not there, and there was no error")
            if not self._is_kept(value, cells[number]):
                among = f"; written together with {short_repr(list(values.values()))}" if len(values) > 1 else ""
                self.broken(f"{short_repr(value)} becomes {short_repr(cells[number])}{among}")

    def _is_kept(self, value: Any, cell: Any) -> bool:
        return self._same(value, cell) or any(
            self._same(becomes(value), cell) for becomes in self._changes.values() if becomes(value) is not value
        )


class _Writer:
    """Writes lists of values, each in a transaction."""

    def __init__(self, kind: SinkValues, judge: _Judge) -> None:
        self._kind, self._judge = kind, judge
        self._numbers, self._claims = count(1), count(1)
        self._committed = 0
        self._job = f"law-values-{token_hex(4)}"
        self._sink: Any = None

    def check(self, values: list[Any], by_shares: bool) -> None:
        __tracebackhide__ = True
        numbered = {next(self._numbers): value for value in values}
        try:
            self._write(numbered, by_shares=by_shares)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - the connector's own
            self._judge.check_refusal(values, error)
            self._start_over()
            half = len(values) // 2
            if half:
                self.check(values[:half], by_shares)
                self.check(values[half:], by_shares)
            return
        self._judge.check_cells(numbered, self._kind.read())

    def close(self) -> None:
        sink, self._sink = self._sink, None
        if hasattr(sink, "close"):
            sink.close()

    def _write(self, numbered: Mapping[int, Any], *, by_shares: bool) -> None:
        """Write values, and commit them."""
        __tracebackhide__ = True
        sink, numbers = self._opened(), list(numbered)
        records = [self._kind.make_record(number, value) for number, value in numbered.items()]
        if not is_transactional(sink):
            _write_batch(sink, numbers, records)
            return
        transaction = self._committed + 1  # one that is refused is no transaction
        if by_shares and is_distributed(sink):
            piece = sink.encode(numbers, records, numbers)
            handle = (transaction, (_sealed(sink.open_writer(Share(transaction, 0, 1, new_token())), piece),))
            if hasattr(sink, "check_sealed"):
                sink.check_sealed([handle])
        else:
            _write_batch(sink, numbers, records)
            handle = sink.prepare(transaction)
        try:
            sink.commit([handle])
        except Exception as error:  # noqa: BLE001 - the connector's own
            shown = ", ".join(map(short_repr, numbered.values()))
            self._judge.broken(f"{shown} is refused by the commit only, when a snapshot has it: {error_text(error)}")
        self._committed = transaction

    def _opened(self) -> Any:
        if self._sink is None:
            made = self._kind.make_sink()
            made = made.sink() if isinstance(made, Connection) else made
            self._sink = made.impl if isinstance(made, StatelessSink) else made
            if is_transactional(self._sink):
                self._sink.fence(SinkOwner(self._job, "out", next(self._claims)))
                self._sink.abort([])
        return self._sink

    def _start_over(self) -> None:
        """Forget what was refused, as the next run does."""
        if is_transactional(self._sink):
            self._sink.abort([])
        else:
            self.close()


class _Reader:
    """Reads lists of values."""

    def __init__(self, kind: SourceValues, judge: _Judge) -> None:
        self._kind, self._judge = kind, judge

    def check(self, values: list[Any], way: bool) -> None:
        __tracebackhide__ = True
        self._kind.write(values)
        try:
            cells = dict(map(self._kind.cell, self._records(len(values))))
        except Exception as error:  # noqa: BLE001 - the connector's own
            self._judge.check_refusal(values, error)
            half = len(values) // 2
            if half:
                self.check(values[:half], way)
                self.check(values[half:], way)
            return
        self._judge.check_cells(dict(enumerate(values)), cells)

    def _records(self, wanted: int) -> list[Any]:
        """Return the records of all parts, until each is finished or there are enough."""
        made: Any = self._kind.make_source()
        made = made.source() if isinstance(made, Connection) else made
        source = made if isinstance(made, StatefulSource) else StatefulSource(made)
        found: list[Any] = []
        readers = [source.build_part(part, None) for part in list_parts("source", source)]
        deadline = time.monotonic() + checked_wait("SourceValues", self._kind.timeout)
        try:
            while len(found) < wanted and not all(reader.is_finished() for reader in readers):
                before = len(found)
                for reader in readers:
                    polled = reader.poll_batch(_LARGE) if hasattr(reader, "poll_batch") else poll_until(reader, _LARGE)
                    found += polled[0]
                if len(found) == before:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(_REST)
        finally:
            for reader in readers:
                if hasattr(reader, "suspend"):
                    reader.suspend()
        return found


def _sealed(writer: Any, piece: Any) -> Any:
    try:
        writer.write(piece)
        return writer.seal()
    except Exception:
        writer.discard()
        raise


def _write_batch(sink: Any, numbers: Sequence[int], records: Sequence[Any]) -> None:
    if hasattr(sink, "sink_batch"):
        sink.sink_batch(numbers, records, numbers)
    else:
        for number, record in zip(numbers, records, strict=True):
            sink.sink(DataMessage(number, record, number))
    if hasattr(sink, "flush"):
        sink.flush()


def _names(value: Any, text: str) -> bool:
    """Whether a text has the beginning of a value, or of one in it, as Python or the system writes it."""
    plain = value[:] if isinstance(value, (str, bytes)) else value  # numpy's own repr lacks NUL at the end
    if any(spelled[:_SHOWN] in text for spelled in (repr(plain), str(plain), short_repr(value)) if spelled):
        return True
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return any(_names(it, text) for it in inner)


def _unspaced(text: str) -> str:
    return re.sub(r"\s+", " ", text)
