"""Names of tables and columns, for statements and for messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from malflow.connectors.postgres.column_kinds import Kind, column_kinds
from malflow.connectors.postgres.connection import PostgresError

__all__ = ["Table", "describe", "identifiers", "raw_sql", "shown_name", "type_names", "types_below"]

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*\Z")

_FIND = """
select c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relreplident::text,
  array(select a.attname::text from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' order by a.attnum),
  array(select a.atttypid::bigint from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' order by a.attnum),
  array(select format_type(a.atttypid, a.atttypmod)
                || case when l.oid is null then '' else format(' collate %%I.%%I', o.nspname, l.collname) end
        from pg_attribute a left join pg_collation l on l.oid = a.attcollation
        left join pg_namespace o on o.oid = l.collnamespace
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' order by a.attnum),
  array(select a.attname::text from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attnotnull order by a.attnum),
  array(select a.attname::text from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attidentity = 'a'),
  c.relkind <> 'p' and exists(select from pg_inherits where inhparent = c.oid),
  array(select a.attname::text from pg_attribute a left join pg_collation l on l.oid = a.attcollation
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.atttypmod = -1
              and coalesce((to_jsonb(l)->>'collisdeterministic')::bool, true)),
  (select count(*) from pg_index i where i.indrelid = c.oid and i.indisunique),
  (select count(*) from pg_constraint k where k.conrelid = c.oid and k.contype in ('c', 'x'))
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%s)
"""

_BELOW = """
with recursive down as (
  select oid, typbasetype as below from pg_type where oid = any(%s::bigint[]) and typtype = 'd'
  union all select down.oid, t.typbasetype from down join pg_type t on t.oid = down.below and t.typtype = 'd')
select down.oid::bigint, down.below::bigint from down join pg_type t on t.oid = down.below and t.typtype <> 'd'
"""

_UNIQUE = """
select i.indisprimary, i.indisreplident, i.indimmediate,
  array(select a.attname::text from unnest(i.indkey[0:i.indnkeyatts - 1]) with ordinality k(n, at)
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.n order by k.at)
from pg_index i
where i.indrelid = %s and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
"""


_EXACT: Mapping[int, frozenset[type]] = {
    16: frozenset({bool}),
    17: frozenset({bytes}),
    20: frozenset({int}),
    21: frozenset({int}),
    23: frozenset({int}),
    25: frozenset({str}),
    1043: frozenset({str}),
    1082: frozenset({date}),
    1700: frozenset({int}),
    2950: frozenset({UUID}),
}
"""By the oid of a type: the Python types whose values are equal if the server's are. No floats (NaN), no times."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns with their types, and its unique keys.

    Attributes:
        types: the oids of the columns' types; for a domain, the oid of its base type.
        casts: the columns' types as SQL, with their collations.
        kinds: the columns' types with their limits.
        identity: the columns by which the server names a changed row; empty if it has none.
        is_full: whether the server sends the whole old row of a change.
        uniques: the columns of each unique index that is checked row by row.
        deferrable: the columns of each unique index that may be checked at the end of a transaction.
        is_partitioned: whether its rows are in partitions.
        is_inherited: whether a query of it also returns rows of child tables, which do not share its unique indexes.
        numbered: identity columns, numbered by the server unless a statement overrides it.
        whole: columns whose values the server stores unchanged: no length, precision or nondeterministic collation.
        unique_indexes: the number of unique indexes of any kind.
        conditions: the number of checks and exclusions.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    types: tuple[int, ...]
    casts: tuple[str, ...]
    kinds: tuple[Kind, ...]
    not_null: frozenset[str]
    primary_key: tuple[str, ...]
    identity: tuple[str, ...]
    is_full: bool
    uniques: tuple[frozenset[str], ...]
    deferrable: tuple[frozenset[str], ...]
    numbered: frozenset[str]
    is_partitioned: bool
    is_inherited: bool
    whole: frozenset[str]
    unique_indexes: int
    conditions: int

    def exact_types(self, column: str) -> frozenset[type]:
        """Return the Python types with values that are equal if, and only if, the server's are, in this column."""
        return _EXACT.get(self.type_of(column), frozenset()) if column in self.whole else frozenset()

    @property
    def shown(self) -> str:
        """Schema and name, in double quotes where SQL needs them."""
        return shown_name(self.schema, self.name)

    @property
    def identifier(self) -> sql.Identifier:
        """The table's name for a statement."""
        return sql.Identifier(self.schema, self.name)

    def type_of(self, column: str) -> int:
        """Return the oid of a column's type."""
        return self.types[self.columns.index(column)]

    def kind_of(self, column: str) -> Kind:
        """Return a column's type with its limits."""
        return self.kinds[self.columns.index(column)]

    def literals(self, columns: tuple[str, ...], values: Sequence[Any]) -> sql.Composed:
        """Return a row of values for a statement, each cast to its column's type and collation."""
        kinds = [raw_sql(self.casts[self.columns.index(column)]) for column in columns]
        cells = [
            sql.SQL("({}::{})").format(sql.Literal(value), kind) for value, kind in zip(values, kinds, strict=True)
        ]
        return sql.SQL("row({})").format(sql.SQL(", ").join(cells))


def describe(connection: psycopg.Connection[Any], name: str, asked_by: str) -> Table:
    """Return the table with a name as written in SQL: with a schema, or found by the search path.

    Raises:
        PostgresError: if there is no such table.
    """
    try:
        found = connection.execute(_FIND, (name,)).fetchone()
    except psycopg.errors.SyntaxErrorOrAccessRuleViolation as error:
        raise PostgresError(f"{asked_by} got table {name!r}, which is not a valid SQL name: {error}") from None
    if found is None:
        mend = 'write the name as in SQL, with its schema: public.orders, or "Orders" in double quotes'
        raise PostgresError(f"{asked_by}: table {name!r} does not exist; {mend}")
    oid, schema, relation, kind, replica, columns, types, casts, not_null, numbered, *more = found
    is_inherited, whole, unique_indexes, conditions = more
    primary: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()
    uniques: dict[bool, list[frozenset[str]]] = {True: [], False: []}
    for is_primary, is_identity, is_immediate, of in connection.execute(_UNIQUE, (oid,)):
        uniques[is_immediate].append(frozenset(of))
        primary = tuple(of) if is_primary else primary
        identity = tuple(of) if is_identity else identity
    if replica != "i":
        identity = () if replica == "n" or frozenset(primary) in uniques[False] else primary
    below = types_below(connection, types)
    return Table(
        oid=oid,
        schema=schema,
        name=relation,
        columns=tuple(columns),
        types=tuple(below.get(it, it) for it in types),
        casts=tuple(casts),
        kinds=column_kinds(connection, oid),
        not_null=frozenset(not_null),
        primary_key=primary,
        identity=identity,
        is_full=replica == "f",
        uniques=tuple(uniques[True]),
        deferrable=tuple(uniques[False]),
        numbered=frozenset(numbered),
        is_partitioned=kind == "p",
        is_inherited=is_inherited,
        whole=frozenset(whole),
        unique_indexes=unique_indexes,
        conditions=conditions,
    )


def types_below(connection: psycopg.Connection[Any], oids: Iterable[int]) -> Mapping[int, int]:
    """Return the base types of domains, through nested domains, for those oids that psycopg does not know."""
    unknown = [oid for oid in oids if psycopg.adapters.types.get(oid) is None]
    return dict(connection.execute(_BELOW, (unknown,)).fetchall()) if unknown else {}


def type_names(connection: psycopg.Connection[Any], oids: Sequence[int]) -> tuple[str, ...]:
    """Return the names of types as SQL."""
    query = "select format_type(oid, null) from unnest(%s::bigint[]::oid[]) with ordinality as t(oid, at) order by at"
    return tuple(name for (name,) in connection.execute(query, (list(oids),)))


def raw_sql(text: str) -> sql.SQL:
    """Wrap SQL that the server wrote, for use in a statement."""
    return sql.SQL(text)


def identifiers(names: tuple[str, ...]) -> sql.Composed:
    """Return the names of columns for a statement, separated by commas."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


def shown_name(*parts: str) -> str:
    """Return a name for people, in double quotes where SQL needs them for its characters.

    >>> shown_name("public", "orders"), shown_name("public", "My orders")
    ('public.orders', 'public."My orders"')
    """
    return ".".join(part if _PLAIN.match(part) else '"' + part.replace('"', '""') + '"' for part in parts)
