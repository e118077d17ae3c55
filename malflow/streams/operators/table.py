"""Tables: the last row of each key, as a stream of changes that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, Unpack, overload

from malflow.callables import advice
from malflow.checks import check_choice
from malflow.message import TableChange
from malflow.nodes import ExchangeNode, KeyNode, Port, SplitNode, StatefulNode, StatelessNode
from malflow.operators.contract import Logic, Operator
from malflow.operators.epochs.frontiers import INPUTS
from malflow.operators.tables.derived import FilterRows, FilterTable, MapRows, MapTable, Regroup, RowsAfter
from malflow.operators.tables.foreign_keys import REFERENCES, ByReference, ForeignJoin, Refer, Referred
from malflow.operators.tables.joins import TableJoin
from malflow.partitioners import Partitioner, part_select, rendezvous_select
from malflow.states.kinds import StateKind
from malflow.streams.arguments import check_count, checked_field_of, checked_function, location, malformed
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.streams.keywords import Versioned
    from malflow.streams.stream import KeyedStream

__all__ = ["Table"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
KO = TypeVar("KO")
VO = TypeVar("VO")
V2 = TypeVar("V2")


_KEEPS = {"inner": (False, False), "left": (True, False), "outer": (True, True)}
"""Whether left and right rows without a partner are in a joined table, by its kind."""

_ARTICLES = {"inner": "an inner", "left": "a left", "outer": "an outer"}


class Table(Generic[K, V, T]):
    """The last row of each key: what `KeyedStream.to_table` makes of a stream of rows.

    A table is not a stream, but has two: `changes`, each with the row before and after it, and `rows`, which sinks of
    tables take. It is immutable: its methods return new tables and streams.

    A change that leaves its row as it was, by ``==``, is not sent. The row before each change is the row after the one
    before it. Folding the changes thus gives the table at any point. Rows are values: they must not be changed once
    given. ``debug=True`` checks this.

    In the examples, ``run(items, build)`` streams the items through the operators that `build` adds, and returns the
    values.
    """

    __slots__ = ("_changes", "_rows", "_versions")

    def __init__(
        self, changes: KeyedStream[K, TableChange[V], T], versions: Callable[[], KeyedStream[K, V | None, T]] | None
    ) -> None:
        self._changes = changes
        self._versions = versions
        self._rows: Any = None

    def changes(self) -> KeyedStream[K, TableChange[V], T]:
        """Return the changes of the table, as `TableChange` values.

        They have the timestamps of the records that made them, or of the expiry, and arrive in the order in which the
        table took them: the changes of a key are in order.

        >>> def moves(stream):
        ...     towns = stream.key_distribute("all", lambda msg: "all").to_table("towns")
        ...     return towns.changes().map("move", lambda change: (change.before, change.after))
        >>> run(["Ulm", "Ulm", "Bonn", None], moves)
        [(None, 'Ulm'), ('Ulm', 'Bonn'), ('Bonn', None)]
        """
        return self._changes

    def rows(self) -> KeyedStream[K, V | None, T]:
        """Return the new row of each change, or None if it was deleted: what sinks of tables take.

        >>> run(["Ulm", "Ulm", None], lambda stream: stream.key_distribute("all", lambda msg: 1).to_table("t").rows())
        ['Ulm', None]
        """
        if self._rows is None:
            name = f"({self._name} rows)"
            self._changes._graph.share(name, location())
            self._rows = self._added(self._changes, name, RowsAfter)
        return self._rows  # type: ignore[no-any-return] # of the class of its changes

    def map(self, name: str, mapper: Callable[[V], VO]) -> Table[K, VO, T]:
        """Replace each row with ``mapper(row)``; the table keeps no state of its own.

        Args:
            name: the operator's name.
            mapper: returns a row, never None. It must be a function: the row before a change is computed again.

        >>> def sizes(stream):
        ...     towns = stream.key_distribute("all", lambda msg: "all").to_table("towns")
        ...     return towns.map("size", len).rows()
        >>> run(["Ulm", "Aue", "Bonn"], sizes)
        [3, 4]
        """
        mapper = checked_function(name, "mapper", mapper, "row")
        return self._derived(name, partial(MapTable, callback=mapper), partial(MapRows, callback=mapper))

    def filter(self, name: str, predicate: Callable[[V], object]) -> Table[K, V, T]:
        """Keep the rows for which ``predicate(row)`` is true; a row that no longer satisfies it is deleted.

        Args:
            name: the operator's name.
            predicate: must be a function: it is called with the rows before and after each change.

        >>> def small(stream):
        ...     counts = stream.key_distribute("all", lambda msg: "all").to_table("counts")
        ...     return counts.filter("small", lambda count: count < 10).rows()
        >>> run([1, 20, 2], small)
        [1, None, 2]
        """
        predicate = checked_function(name, "predicate", predicate, "row")
        return self._derived(name, partial(FilterTable, callback=predicate), partial(FilterRows, callback=predicate))

    @overload
    def grouped(self, name: str, key_fn: Callable[[V], KO]) -> KeyedStream[KO, TableChange[V], T]: ...
    @overload
    def grouped(self, name: str, key_fn: str) -> KeyedStream[Any, TableChange[V], T]: ...
    def grouped(self, name: str, key_fn: Any) -> Any:
        """Return the changes with ``key_fn(row)`` as their key, on the worker that owns it.

        If a row's key changes, the row is deleted at the old key and inserted at the new one: two changes, of one tick.
        So the sum, the count or the best rows of a group follow from the changes of the group alone.

        Args:
            name: the operator's name.
            key_fn: a function of the row, or the name of its item or attribute.

        >>> def sizes(stream):
        ...     people = stream.key_distribute("who", lambda msg: msg.value[0]).to_table("people")
        ...     by_town = people.grouped("town", lambda row: row[1])
        ...     step = {"insert": 1, "update": 0, "delete": -1}
        ...     def count(town, change, before):
        ...         now = before + step[change.kind]
        ...         return (town, now), now or None
        ...     return by_town.stateful_map("count", count, default=int)
        >>> run([("Ann", "Ulm"), ("Bob", "Ulm"), ("Ann", "Bonn")], sizes)
        [('Ulm', 1), ('Ulm', 2), ('Ulm', 1), ('Bonn', 1)]
        """
        if key_fn is None:
            raise malformed(name, "needs a function of the row, or the name of a field, as its key_fn; got None")
        logic = partial(Regroup, callback=checked_field_of(name, "key_fn", key_fn))
        keyed = self._changes._append(KeyNode(name, logic))
        return self._changes._stream(self._changes._add(ExchangeNode(name, rendezvous_select), keyed), keyed=True)

    @overload
    def join(
        self,
        name: str,
        right: Table[K, V2, T],
        joiner: Callable[[V, V2], VO],
        *,
        how: Literal["inner"] = "inner",
        **more: Unpack[Versioned],
    ) -> Table[K, VO, T]: ...
    @overload
    def join(
        self,
        name: str,
        right: Table[K, V2, T],
        joiner: Callable[[V, V2 | None], VO],
        *,
        how: Literal["left"],
        **more: Unpack[Versioned],
    ) -> Table[K, VO, T]: ...
    @overload
    def join(
        self,
        name: str,
        right: Table[K, V2, T],
        joiner: Callable[[V | None, V2 | None], VO],
        *,
        how: Literal["outer"],
        **more: Unpack[Versioned],
    ) -> Table[K, VO, T]: ...
    @overload
    def join(
        self,
        name: str,
        right: Table[Any, V2, T],
        joiner: Callable[[V, V2], VO],
        *,
        on: Callable[[V], Any] | str,
        how: Literal["inner"] = "inner",
        **more: Unpack[Versioned],
    ) -> Table[K, VO, T]: ...
    @overload
    def join(
        self,
        name: str,
        right: Table[Any, V2, T],
        joiner: Callable[[V, V2 | None], VO],
        *,
        on: Callable[[V], Any] | str,
        how: Literal["left"],
        **more: Unpack[Versioned],
    ) -> Table[K, VO, T]: ...
    def join(
        self,
        name: str,
        right: Any,
        joiner: Any,
        *,
        on: Any = None,
        how: str = "inner",
        version: int = 1,
        migrate: Any = None,
    ) -> Any:
        """Join two tables with the same keys, or by a foreign key: the rows of this table with the rows of the other.

        Without `on`, the joined table has a row of each key for which both have one. With `on`, it has the keys of this
        table, and each of its rows is joined with the row of the other table at the key ``on(row)``. A change of a row
        of the other table changes all rows that refer to it.

        Each change of either table makes at most one change of each joined row, with its timestamp. The epoch
        (watermark) is the least of both. The join keeps the rows of both tables; with `on`, also the references.

        Args:
            name: the operator's name; snapshots store the rows under it.
            right: the other table. Without `on`, both must be keyed with the same partitioner.
            joiner: ``(left_row, right_row) -> row``; never None. It must be a function: the row before a change is
                computed again.
            on: returns the key of the other table's row for a row of this one, None for no row: a function of the row,
                or the name of its item or attribute.
            how: ``inner``; ``left`` to join left rows without a right one with None; ``outer`` to do so on both sides
                (not possible with `on`).
            version: the schema version of the rows: increase it when their schema changes.
            migrate: ``(old_row, old_version) -> row``: converts a row of either table.

        >>> def both(stream):
        ...     odd, even = (
        ...         stream.filter(f"of {rest}", lambda n, rest=rest: n % 2 == rest)
        ...         .key_distribute(f"by {rest}", lambda msg: "all").to_table(f"table {rest}")
        ...         for rest in (1, 0)
        ...     )
        ...     return odd.join("both", even, lambda one, other: (one, other)).rows()
        >>> run([1, 2], both)
        [(1, 2)]
        >>> def boss_names(stream):
        ...     people = stream.key_distribute("name", lambda msg: msg.value[0]).to_table("people")
        ...     return people.join("bosses", people, lambda one, boss: (one[0], boss[2]), on=lambda row: row[1]).rows()
        >>> run([("Ann", None, "Ulm"), ("Bob", "Ann", "Bonn"), ("Ann", None, "Aue")], boss_names)
        [('Bob', 'Ulm'), ('Bob', 'Aue')]
        """
        if not isinstance(right, Table):
            raise malformed(name, f"joins two tables; got {short_repr(right)}; call .to_table() on a stream of rows")
        check_choice(partial(malformed, name), "how", how, tuple(_KEEPS))
        joiner = checked_function(name, "joiner", joiner, "left_row, right_row")
        if on is not None:
            return Table(self._joined_on(name, right, joiner, on, how, version, migrate), None)
        changes = self._changes._stateful(
            name,
            partial(TableJoin, joiner=joiner, keeps=_KEEPS[how]),
            StateKind.JOIN,
            version,
            migrate,
            others=[right._changes],
            waits=False,
            hidden=((INPUTS, StateKind.FRONTIER),),
            definition=f"{_ARTICLES[how]} join of tables",
            panes="rows of two tables",
        )
        return Table(changes, None)

    def _joined_on(
        self, name: str, right: Table[Any, Any, T], joiner: Any, on: Any, how: str, version: int, migrate: Any
    ) -> Any:
        """Return the changes of the join by a foreign key: see `malflow.operators.tables.foreign_keys`."""
        if how == "outer":
            raise malformed(
                name,
                "joins by a foreign key, so that its rows have the keys of the left table; how='outer' would have rows "
                "without one: write how='left', or join the right table with the left one",
            )
        on = checked_field_of(name, "on", on)
        stream, graph = self._changes, self._changes._graph
        left_port, right_port = stream._ports(name, [right._changes], keyed=True)
        left_place, right_place = (self._place(name, port) for port in (left_port, right_port))
        check_count(name, version, "version")
        if migrate is not None:
            checked_function(name, "migrate", migrate, "old, old_version")
        graph.claim(name, location())
        found, to_right, referred, back = (f"({name} {what})" for what in ("references", "to", "referred", "back"))
        for hidden in (found, to_right, referred, back):
            graph.share(hidden, location())
        split = stream._add(SplitNode(found, partial(Refer, on=on), 2), left_port)
        moved = stream._add(KeyNode(to_right, ByReference), split)
        moved = stream._add(ExchangeNode(to_right, right_place), moved)
        facts: Any = {"version": version, "migrate": migrate, "panes": "rows of two tables"}
        keeper = StatefulNode(
            referred,
            Referred,
            right_place,
            StateKind.JOIN,
            keeps_keys=False,
            hidden=((INPUTS, StateKind.FRONTIER), (REFERENCES, StateKind.DISTINCT)),
            definition="rows that others refer to",
            **facts,
        )
        answers = stream._add(ExchangeNode(back, left_place), stream._add(keeper, moved, right_port))
        joined = StatefulNode(
            name,
            partial(ForeignJoin, joiner=joiner, keeps=_KEEPS[how]),
            left_place,
            StateKind.JOIN,
            definition=f"{_ARTICLES[how]} join of tables by a foreign key",
            times=1,
            method="join",
            **facts,
        )
        return stream._at(stream._add(joined, answers, Port(split.vertex, 1)))

    def _place(self, name: str, port: Port) -> Partitioner:
        place = self._changes._graph.settled(port)
        if place is None:
            raise malformed(
                name,
                "joins by a foreign key, which brings rows to the worker of a key, and the keys of a table have none; "
                "call .key_distribute() before .to_table()",
            )
        return rendezvous_select if place is part_select else place  # a key need not be a part, or not yet

    if not TYPE_CHECKING:  # type checkers report missing methods themselves

        def __getattr__(self, attribute: str) -> NoReturn:
            if attribute.startswith("_") or not hasattr(self._changes, attribute):
                methods = [method for method in dir(type(self)) if not method.startswith("_")]
                raise AttributeError(f"'Table' object has no attribute {attribute!r}{advice(attribute, methods)}")
            raise AttributeError(
                f"a Table is not a stream, but has two; write .changes().{attribute}(...) for its changes, or "
                f".rows().{attribute}(...) for its rows"
            )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the dataflow so far for notebooks, as its changes do."""
        return self._changes._repr_mimebundle_(include, exclude)

    @property
    def _name(self) -> str:
        port = self._changes._input("table")
        return self._changes._graph.vertices[port.vertex].node.name

    def _versions_for(self, name: str) -> KeyedStream[K, V | None, T]:
        """Return the rows of the table's input, for a join in event time.

        Raises:
            GraphError: if the table is a join of others, without an input of its own.
        """
        if self._versions is None:
            raise malformed(
                name,
                f"can't join with '{self._name}' in event time: a table that is joined of others has no rows of its "
                "own, whose times count; join the stream with one table after the other, or pass at='arrival'",
            )
        return self._versions()

    def _derived(self, name: str, of_changes: Logic, of_rows: Logic) -> Table[Any, Any, Any]:
        changes = self._changes._at(self._changes._append(StatelessNode(name, of_changes)))
        if self._versions is None:
            return Table(changes, None)
        return Table(changes, partial(self._derived_versions, name, self._versions, of_rows))

    def _derived_versions(self, name: str, versions: Callable[[], Any], of_rows: Logic) -> Any:
        hidden = f"({name} of rows)"
        self._changes._graph.share(hidden, location())
        return self._added(versions(), hidden, of_rows)

    def _added(self, stream: Any, name: str, logic: Callable[..., Operator]) -> Any:
        return stream._at(stream._add(StatelessNode(name, logic), stream._input(name)))
