"""What the catalogs of databases say about a table beyond SQLAlchemy's description of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from malflow.connectors.sql.database import SqlError

__all__ = ["Zone", "character_sets", "check_engine", "has_conditions", "zone_of_session"]

Zone: TypeAlias = Literal["utc", "fixed", "changing"]
"""The kind of a time zone: UTC, another offset, or an offset that changes, so that some local times do not exist."""

_ENGINE = """
select t.engine, e.transactions, t.table_schema, t.table_name, t.table_type
from information_schema.tables t left join information_schema.engines e on e.engine = t.engine
where t.table_schema = coalesce(:schema, database()) and t.table_name = :name
"""
_ENGINES_BELOW = """
select t.engine, e.transactions
from information_schema.views v join information_schema.tables t
  on instr(v.view_definition, concat('`', t.table_schema, '`.`', t.table_name, '`'))
left join information_schema.engines e on e.engine = t.engine
where v.table_schema = coalesce(:schema, database()) and v.table_name = :name and t.table_type <> 'VIEW'
"""
_CHARACTER_SETS = """
select column_name, character_set_name from information_schema.columns
where table_schema = coalesce(:schema, database()) and table_name = :name and character_set_name is not null
"""
_TRIGGERS = """
select 1 from information_schema.triggers
where event_object_schema = coalesce(:schema, database()) and event_object_table = :name limit 1
"""
_POSTGRES = """
select c.relkind not in ('r', 'f') or c.relrowsecurity
  or exists(select from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal)
  or exists(select from pg_constraint k where k.conrelid = c.oid and k.contype in ('c', 'x'))
from pg_class c where c.oid = to_regclass(:shown)
"""
_CONDITIONS = ("check (", "partition by", "system versioning")
_UTC = ("UTC", "GMT", "+00:00", "-00:00")
_WHOLE = "utf8mb4"


def has_conditions(
    connection: sa.Connection, inspector: sa.Inspector, table: sa.Table, found: Iterable[Mapping[str, Any]]
) -> bool:
    """Whether a table may refuse a row with values that fit their columns.

    It may if it has checks, generated columns, triggers or partitions, or is a view.

    Args:
        connection: an open connection.
        inspector: describes the database.
        table: the table.
        found: the inspector's description of the columns.
    """
    with suppress(NotImplementedError):
        if inspector.get_check_constraints(table.name, table.schema):
            return True
    if any(it.get("computed") for it in found):
        return True
    ask = _ASKED.get(connection.dialect.name)
    return ask is not None and ask(connection, table)


def character_sets(connection: sa.Connection, table: sa.Table) -> Mapping[str, str]:
    """Return the character sets that limit the columns of text, by name; empty if the database has one for all text."""
    match connection.dialect.name:
        case "mysql" | "mariadb":
            client = str(connection.exec_driver_sql("select @@character_set_client").scalar_one()).lower()
            found = {row[0]: str(row[1]).lower() for row in _asked(connection, _CHARACTER_SETS, table)}
            return {name: client if charset == _WHOLE else charset for name, charset in found.items()}
        case "postgresql":
            encoding = connection.exec_driver_sql("show server_encoding").scalar_one()
            return {} if encoding == "UTF8" else dict.fromkeys(table.columns.keys(), str(encoding).lower())
    return {}


def zone_of_session(connection: sa.Connection) -> Zone:
    """Return the kind of the session's time zone."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return "utc"
    zone, system = connection.exec_driver_sql("select @@session.time_zone, @@system_time_zone").one()
    name = str(system if zone == "SYSTEM" else zone)
    if name.upper() in _UTC:
        return "utc"
    return "fixed" if name[:1] in ("+", "-") else "changing"


def check_engine(connection: sa.Connection, table: sa.Table, shown: str) -> None:
    """Check that a table supports transactions.

    Raises:
        SqlError: if its engine has none.
    """
    if connection.dialect.name not in ("mysql", "mariadb"):
        return
    engines: Sequence[Any] = [tuple(row)[:2] for row in _asked(connection, _ENGINE, table)]
    if engines and engines[0][0] is None:  # a view
        engines = _asked(connection, _ENGINES_BELOW, table)
    for engine, transactions in engines:
        if engine is not None and transactions != "YES":
            raise SqlError(
                f"table {shown} has engine {engine}, which has no transactions; alter it to InnoDB, or pass "
                "delivery='at-least-once'"
            )


def _asked(connection: sa.Connection, query: str, table: sa.Table) -> Sequence[Any]:
    return connection.execute(sa.text(query), {"schema": table.schema, "name": table.name}).all()


def _mysql_conditions(connection: sa.Connection, table: sa.Table) -> bool:
    shown = connection.dialect.identifier_preparer.format_table(table)
    made = str(connection.exec_driver_sql(f"show create table {shown}").one()[1])
    if not made.lower().startswith(("create table", "create temporary")):  # a view
        return True
    return any(it in made.lower() for it in _CONDITIONS) or bool(_asked(connection, _TRIGGERS, table))


def _sqlite_conditions(connection: sa.Connection, table: sa.Table) -> bool:
    catalog = sa.table("sqlite_master", sa.column("type"), sa.column("sql"), schema=table.schema)
    query = sa.select(catalog.c.type, catalog.c.sql).where(
        sa.column("tbl_name") == table.name, catalog.c.type != "index"
    )
    made = connection.execute(query).all()
    return any(kind != "table" or "check" in (text or "").lower() for kind, text in made)


def _postgres_conditions(connection: sa.Connection, table: sa.Table) -> bool:
    shown = connection.dialect.identifier_preparer.format_table(table)
    return bool(connection.execute(sa.text(_POSTGRES), {"shown": shown}).scalar())


_ASKED: Mapping[str, Callable[[sa.Connection, sa.Table], bool]] = {
    "mysql": _mysql_conditions,
    "mariadb": _mysql_conditions,
    "sqlite": _sqlite_conditions,
    "postgresql": _postgres_conditions,
}
