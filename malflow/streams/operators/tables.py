"""Methods of keyed streams that make tables, and join records with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from malflow.checks import check_choice, checked_length
from malflow.nodes import Port
from malflow.operators.epochs.frontiers import INPUTS
from malflow.operators.joins.asof_join import VersionsJoin, migrated_rows
from malflow.operators.keyed.timed_op import TIMERS
from malflow.operators.tables.joins import ArrivalJoin
from malflow.operators.tables.table import ToTable
from malflow.states.kinds import StateKind
from malflow.streams.arguments import checked_field_of, checked_function, malformed
from malflow.streams.operators.stateful import StatefulOperators
from malflow.streams.operators.table import Table
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.streams.keywords import Arriving, Expiring
    from malflow.streams.stream import KeyedStream

__all__ = ["TableOperators"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
V2 = TypeVar("V2")
T = TypeVar("T")
VO = TypeVar("VO")
R = TypeVar("R")


_ARTICLES = {"left": "a left", "inner": "an inner"}


class TableOperators(StatefulOperators[K, V_co, T]):
    """Methods that make tables of rows, and join records with the row of their key."""

    __slots__ = ()

    @overload
    def to_table(
        self: TableOperators[K, R | None, T], name: str, row: None = None, **more: Unpack[Expiring]
    ) -> Table[K, R, T]: ...
    @overload
    def to_table(self, name: str, row: Callable[[V_co], R | None], **more: Unpack[Expiring]) -> Table[K, R, T]: ...
    @overload
    def to_table(self, name: str, row: str, **more: Unpack[Expiring]) -> Table[K, Any, T]: ...
    def to_table(self, name: str, row: Any = None, *, ttl: Any = None, version: int = 1, migrate: Any = None) -> Any:
        """Keep the last row of each key, in the order of arrival; call `sort` before it for the order of event time.

        Args:
            name: the operator's name; snapshots store the rows under it.
            row: returns the row of a value: a function, or the name of its item or attribute; by default the value
                itself. None deletes the row of the key. Rows are compared by ``==``.
            ttl: a number or a timedelta: a row is deleted at the first epoch (watermark) that reaches the timestamp of
                its last record plus `ttl`, even if that record left it as it was. The deletion has that timestamp. The
                end of the input deletes nothing.
            version: the schema version of the rows: increase it when their schema changes.
            migrate: ``(old_row, old_version) -> row``: converts a row from a snapshot of an older version; None drops
                it.

        Raises:
            GraphError: if `ttl` is not positive, or the stream has no epochs for it.

        >>> def latest(stream):
        ...     rows = stream.key_distribute("who", lambda msg: msg.value[0]).to_table("towns", row=lambda it: it[1])
        ...     return rows.changes().map("plain", tuple)
        >>> run([("Ann", "Ulm"), ("Bob", "Bonn"), ("Ann", "Ulm"), ("Ann", None)], latest)
        [(None, 'Ulm'), (None, 'Bonn'), ('Ulm', None)]
        """
        row = checked_field_of(name, "row", row)
        if ttl is not None:
            ttl = checked_length(partial(malformed, name), "ttl", ttl)
            if not self._graph.has_epochs(self._input(name)):
                raise malformed(
                    name,
                    "has rows that expire by epochs (watermarks), and its input has none; call .event_time() or "
                    ".generate_epochs() before, or leave out ttl=",
                )
        changes = self._stateful(
            name,
            partial(ToTable, row=row, ttl=ttl),
            StateKind.TABLE,
            version,
            migrate,
            definition="a table",
            hidden=() if ttl is None else ((TIMERS, StateKind.TIMERS),),
            outputs=2,
            tells_by=() if ttl is None else None,
        )[0]
        return Table(changes, lambda: changes._at(Port(changes._port.vertex, 1)))

    @overload
    def join_table(
        self,
        name: str,
        table: Table[K, V2, Any] | KeyedStream[K, V2 | None, Any],
        joiner: Callable[[V_co, V2 | None], VO],
        *,
        how: Literal["left"] = "left",
        **more: Unpack[Arriving],
    ) -> KeyedStream[K, VO, T]: ...
    @overload
    def join_table(
        self,
        name: str,
        table: Table[K, V2, Any] | KeyedStream[K, V2 | None, Any],
        joiner: Callable[[V_co, V2], VO],
        *,
        how: Literal["inner"],
        **more: Unpack[Arriving],
    ) -> KeyedStream[K, VO, T]: ...
    def join_table(
        self,
        name: str,
        table: Any,
        joiner: Any,
        *,
        how: str = "left",
        at: str = "time",
        version: int = 1,
        migrate: Any = None,
    ) -> Any:
        """Join each record with the row of its key: by default, the one that was valid at the record's timestamp.

        With ``at="time"``, a record waits until the epoch (watermark) of both inputs reaches its timestamp, and is
        joined with the newest row that is not later, as by `asof_join`: the result is the same after a restart, with
        more workers, and when rows arrive late. It reads the rows of the table's *input*, with their timestamps;
        deletions count. Tables that were made by `Table.join` have no such input.

        With ``at="arrival"``, a record is joined at once with the row that is known when it arrives. *The result may be
        different after a restart or with more workers*, since the order between two streams is not specified. Of the
        records and rows of a tick, rows count first. The result has the epochs of the records alone, so a table without
        epochs holds nobody back.

        Args:
            name: the operator's name; snapshots store the rows under it that are needed, a copy of its own.
            table: the table; or a keyed stream of rows, in which None deletes, if the table is not needed otherwise.
                Both must be keyed with the same partitioner.
            joiner: ``(value, row) -> result``.
            how: ``left`` to join records without a row with None; ``inner`` to drop them.
            at: ``time`` or ``arrival``: when a row must be valid.
            version: the schema version of rows and records: increase it when their classes change.
            migrate: ``(old_value, old_version) -> value``: converts a row or, at event time, a record that waits.

        Raises:
            GraphError: if `at` is ``time`` and an input has no epochs.

        >>> def priced(stream):
        ...     timed, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        ...     keyed = timed.key_distribute("all", lambda msg: "all")
        ...     prices = keyed.filter("even", lambda value: value % 2 == 0).to_table("prices")
        ...     return keyed.join_table("priced", prices, lambda order, price: (order, price))
        >>> run([5, 6, 7], priced)
        [(5, None), (6, 6), (7, 6)]
        """
        check_choice(partial(malformed, name), "how", how, tuple(_ARTICLES))
        joiner = checked_function(name, "joiner", joiner, "value, row")
        if isinstance(table, Table):
            self._ports(name, [table.changes()])  # before a node is added to another dataflow
        if at == "arrival":
            return self._join_known(name, table, joiner, how, version, migrate)
        if at != "time":
            raise malformed(name, f"needs 'time' or 'arrival' as its at; got {short_repr(at)}")
        rows = table._versions_for(name) if isinstance(table, Table) else table
        if not all(map(self._graph.has_epochs, self._ports(name, [rows], keyed=True))):
            raise malformed(
                name,
                "joins with the row that was valid at the time of a record, by epochs (watermarks), and an "
                "input has none; call .event_time() or .generate_epochs() before, or pass at='arrival' for the one "
                "that is known when a record arrives",
            )
        if migrate is not None:
            migrate = partial(migrated_rows, migrate=checked_function(name, "migrate", migrate, "old, old_version"))
        definition = f"{_ARTICLES[how]} join with the rows of a table by time"
        return self._stateful(
            name,
            partial(VersionsJoin, joiner=joiner, keeps_left=how == "left"),
            StateKind.JOIN,
            version,
            migrate,
            others=[rows],
            hidden=((INPUTS, StateKind.FRONTIER),),
            definition=definition,
            panes="versions of rows",
        )

    def _join_known(self, name: str, table: Any, joiner: Any, how: str, version: int, migrate: Any) -> Any:
        return self._stateful(
            name,
            partial(ArrivalJoin, joiner=joiner, keeps_left=how == "left"),
            StateKind.TABLE,
            version,
            migrate,
            others=[table.rows() if isinstance(table, Table) else table],
            definition="rows joined by arrival",
            times=1,
        )
