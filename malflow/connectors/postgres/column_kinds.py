"""The types of a table's columns, beneath domains and arrays, with their limits of length and digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

__all__ = ["ARRAY", "Kind", "column_kinds"]

ARRAY = "A"
"""Postgres's category of arrays, in `pg_type`."""

_KINDS = """
with recursive below as (
  select a.attnum, a.atttypid as oid, a.atttypmod as modifier, false as is_array, ','::"char" as delimiter, 0 as depth
  from pg_attribute a where a.attrelid = %s and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
  union all
  select b.attnum, case when t.typtype = 'd' then t.typbasetype else t.typelem end,
    case when t.typtype = 'd' and t.typtypmod <> -1 then t.typtypmod else b.modifier end,
    b.is_array or t.typtype <> 'd', case when t.typtype = 'd' then b.delimiter else t.typdelim end, b.depth + 1
  from below b join pg_type t on t.oid = b.oid
  where t.typtype = 'd' or (t.typcategory = 'A' and t.typelem <> 0
    and t.oid not in (22, 30))
)
select distinct on (b.attnum) b.oid::bigint, b.modifier, b.is_array, b.delimiter::text, t.typcategory::text,
  format_type(b.oid, b.modifier)
from below b join pg_type t on t.oid = b.oid order by b.attnum, b.depth desc
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a column.

    Attributes:
        oid: the oid of the type; for an array, of its elements'; for a domain, of its base type.
        modifier: the number in which Postgres keeps the limits of a type, such as length and digits; -1: none.
        is_array: whether the column has arrays.
        delimiter: what separates the elements of an array.
        category: Postgres's category of the type: ``N`` for numbers, ``S`` for text, ``D`` for dates and times.
        name: the name of the type with its limits.
    """

    oid: int
    modifier: int
    is_array: bool
    delimiter: str
    category: str
    name: str


def column_kinds(connection: psycopg.Connection[Any], table: int) -> tuple[Kind, ...]:
    """Return the types of a table's columns, without generated ones, in their order."""
    return tuple(Kind(*row) for row in connection.execute(_KINDS, (table,)))
