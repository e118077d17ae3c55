"""Window functions: which rows, which time, and how large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from malflow.sql.bind.literals import interval_of
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Call, Expression, Literal, Name, Node, Reference
from malflow.sql.text import Fault, Source, Span, SqlError

__all__ = ["WINDOW_COLUMNS", "counting_of", "renewed", "window_of", "without_old_windows"]

WINDOW_COLUMNS = ("window_start", "window_end", "window_time")
"""The columns that a window function adds."""

_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET?"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET?"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET?"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
    "COUNTING": ("DATA", "SIZE"),
}
"""The arguments of each function, in their order; those with a mark may be left out."""


def window_of(ref: tree.WindowCall, source: Source) -> tuple[tree.TableArgument, Name, list[tuple[int, Span]]]:
    """Return the rows of a window function, the column of their time, and its spans in microseconds.

    The spans are the ones of `WindowSpec`: size, step, offset.

    Raises:
        SqlError: if arguments are missing, unknown, or of another kind.
    """
    given = _given(ref, source)
    table, time = _rows(given, ref, source), given.pop("TIMECOL")
    if not isinstance(time, tree.Descriptor) or len(time.columns) != 1:
        raise _fault(f"{ref.name} needs the column of its time, as in DESCRIPTOR(ts)", ref.span, source)
    spans = {key: _span(key, node, source) for key, node in given.items()}
    size = spans.get("SIZE") or spans.get("GAP")
    step = spans.get("SLIDE") or spans.get("STEP")
    if ref.name.text == "CUMULATE" and step and size and size[0] % step[0]:
        raise _fault("the size of CUMULATE must be a multiple of its step", size[1], source)
    if size is None:
        raise _fault(f"{ref.name} needs a size", ref.span, source)
    nothing = (0, ref.span)
    return table, time.columns[0], [size, step or nothing, spans.get("OFFSET") or nothing]


def counting_of(ref: tree.WindowCall, source: Source) -> tuple[tree.TableArgument, int]:
    """Return the rows of COUNTING, and how many rows of each key a window has.

    Raises:
        SqlError: if arguments are missing, unknown, or of another kind.
    """
    given = _given(ref, source)
    table, size = _rows(given, ref, source), given["SIZE"]
    count = int(size.text) if isinstance(size, Literal) and size.kind == "NUMBER" and size.text.isdecimal() else 0
    if not count:
        raise _fault("SIZE is a number of rows, as in COUNTING(TABLE bids PARTITION BY item, 100)", size.span, source)
    return table, count


def _rows(given: dict[str, Node], ref: tree.WindowCall, source: Source) -> tree.TableArgument:
    table = given.pop("DATA")
    if not isinstance(table, tree.TableArgument):
        raise _fault(f"{ref.name} needs its rows, as in TABLE bids", ref.span, source)
    return table


_OLD = {"TUMBLE": "TUMBLE", "HOP": "HOP", "SESSION": "SESSION"}
_OLD_COLUMNS = {"START": "window_start", "END": "window_end", "ROWTIME": "window_time"}


def without_old_windows(query: tree.Select) -> tree.Select:
    """Return a query with GROUP BY TUMBLE(ts, ...) and the like written as a window function in FROM."""
    found = [it for it in query.group or () if isinstance(it, Call) and it.name.text.upper() in _OLD]
    if len(found) != 1 or not isinstance(query.source, tree.NamedTable | tree.Derived):
        return query
    call = found[0]
    others = tuple(it for it in query.group or () if it is not call)
    partition = tuple(it for it in others if isinstance(it, Expression)) if call.name.text.upper() == "SESSION" else ()
    time, *sizes = call.arguments
    names = time.names if isinstance(time, Reference) else ()
    table = tree.TableArgument(query.source, partition, span=query.source.span)
    arguments: Any = (("", table), ("", tree.Descriptor(names[-1:], span=time.span)), *(("", it) for it in sizes))
    name = Name(call.name.text.upper(), span=call.span)
    alias = query.source.alias or (query.source.name if isinstance(query.source, tree.NamedTable) else None)
    window = tree.WindowCall(name, arguments, alias=alias, span=call.span)
    marks = tuple(Reference((Name(it, span=call.span),), span=call.span) for it in _OLD_COLUMNS.values())

    def column(of: Call) -> Expression | None:
        """Return the column of the window that TUMBLE_START(...) and the like mean."""
        kind, _, bound = of.name.text.upper().partition("_")
        if kind == name.text and bound in _OLD_COLUMNS and of.arguments == call.arguments:
            return Reference((Name(_OLD_COLUMNS[bound], span=of.span),), span=of.span)
        return None

    items = tuple(replace(it, expression=renewed(it.expression, column)) for it in query.items)
    having = query.having and renewed(query.having, column)
    return replace(query, source=window, group=(*marks, *others), items=items, having=having)


def renewed(node: Any, change: Callable[[Any], Expression | None], kind: type[Expression] = Call) -> Any:
    """Return an expression with others in place of its calls, or parts of a kind; `change` returns None for some."""
    found = change(node) if isinstance(node, kind) else None
    if found is not None:
        return found
    if isinstance(node, Node):
        return replace(node, **{it.name: renewed(getattr(node, it.name), change, kind) for it in fields(node)})
    if isinstance(node, tuple) and not isinstance(node, Span):
        return tuple(renewed(it, change, kind) for it in node)
    return node


def _given(ref: tree.WindowCall, source: Source) -> dict[str, Node]:
    """Return the arguments by their names."""
    known = _ARGUMENTS.get(ref.name.text)
    if known is None:
        raise _fault(f"{ref.name} is not supported", ref.span, source)
    names = [it.rstrip("?") for it in known]
    given: dict[str, Node] = {}
    for at, (key, node) in enumerate(ref.arguments):
        name = key or (names[at] if at < len(names) else "")
        if name not in names or name in given:
            raise _fault(f"{ref.name} takes {', '.join(names)}", node.span, source)
        given[name] = node
    missing = [it for it in known if not it.endswith("?") and it not in given]
    if missing:
        raise _fault(f"{ref.name} needs {', '.join(missing)}", ref.span, source)
    return given


def _span(key: str, node: Node, source: Source) -> tuple[int, Span]:
    """Return a span of time in microseconds."""
    is_interval = isinstance(node, Literal) and node.kind == "INTERVAL"
    if not isinstance(node, Literal) or not is_interval or node.units[0] in {"YEAR", "QUARTER", "MONTH"}:
        raise _fault(f"{key} is an interval of days to seconds, as in INTERVAL '5' MINUTE", node.span, source)
    try:
        found = interval_of(node)
    except ValueError as error:
        raise _fault(str(error), node.span, source) from None
    if found <= 0 and key != "OFFSET":
        raise _fault(f"{key} must be positive", node.span, source)
    return found, node.span


def _fault(message: str, span: Span, source: Source) -> SqlError:
    return SqlError([Fault(message, span, source)])
