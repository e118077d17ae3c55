"""CREATE TABLE ... LIKE: a statement with the columns, watermark and options of another table."""

from __future__ import annotations

from dataclasses import replace

from malflow.sql.parser.statements import parse
from malflow.sql.syntax import queries as tree
from malflow.sql.text import Fault, Source, SqlError

__all__ = ["liked"]

_RULES = {
    "CONSTRAINTS": "INCLUDING",
    "GENERATED": "INCLUDING",
    "METADATA": "INCLUDING",
    "OPTIONS": "OVERWRITING",
    "WATERMARKS": "INCLUDING",
}
"""The parts that a table takes from another by default, as in Flink: its own options overwrite those of the other."""

_KINDS = {tree.Computed: "GENERATED", tree.Watermark: "WATERMARKS", tree.PrimaryKey: "CONSTRAINTS"}

Element = tree.ColumnDef | tree.Computed | tree.Watermark | tree.PrimaryKey


def liked(
    statement: tree.CreateTable, text: Source, base: tree.CreateTable, its: Source
) -> tuple[tree.CreateTable, Source]:
    """Return a statement with the parts of the table that it is LIKE, and the text of all its parts.

    Raises:
        SqlError: if a part is in both, and no rule says which one counts.
    """
    rules = dict(_RULES)
    for way, what in sorted((it.split() for it in statement.like_rules), key=lambda it: it[1] != "ALL"):
        rules |= dict.fromkeys(rules, way) if what == "ALL" else {what: way}
    own = {_key(it): it for it in statement.elements}
    elements: list[Element] = []
    faults: list[Fault] = []
    for it in base.elements:
        kind, new = _kind(it), own.get(_key(it))
        if kind and rules[kind] == "EXCLUDING":
            continue
        if new is not None and (not kind or rules[kind] != "OVERWRITING" or _kind(new) != kind):
            cure = f"rename it, or write LIKE {base.name} (EXCLUDING {kind})" if kind else "remove it, or rename it"
            faults.append(Fault(f"{base.name} has {_key(it) or 'a watermark'} too; {cure}", new.span, text))
        elements.append(own.pop(_key(it)) if new is not None else it)
    options = [] if rules["OPTIONS"] == "EXCLUDING" else [*base.options]
    given = {key for key, _, _ in statement.options}
    twice = [key for key, _, _ in options if key in given]
    if twice and rules["OPTIONS"] == "INCLUDING":
        cure = f"write LIKE {base.name} (OVERWRITING OPTIONS)"
        faults.append(Fault(f"{base.name} has the option {twice[0]!r} too; {cure}", statement.name.span, text))
    if faults:
        raise SqlError(faults)
    options = [it for it in options if it[0] not in given]
    made = replace(
        statement,
        elements=(*elements, *own.values()),
        options=(*options, *statement.options),
        like=None,
        like_rules=(),
    )
    if text is its:
        return made, text
    printed = Source(str(made), f"{statement.name} LIKE {base.name}")  # its places are in two texts
    (again,) = parse(printed)
    return (again, printed) if isinstance(again, tree.CreateTable) else (made, text)


def _kind(element: Element) -> str:
    """Return the word of LIKE for an element; an empty text for a plain column, which is always taken."""
    if isinstance(element, tree.ColumnDef):
        return "METADATA" if element.metadata is not None else ""
    return _KINDS[type(element)]


def _key(element: Element) -> str:
    """Return the name of a column; an empty text for the watermark, as there is one."""
    return element.name.text if isinstance(element, tree.ColumnDef | tree.Computed) else ""
