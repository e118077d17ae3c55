"""Inspect user functions before they are called: deferred functions, misspelt hooks, a forgotten ``return``."""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import re
from collections.abc import Collection, Iterator
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import Any

from malflow.words import did_you_mean, resembling

__all__ = [
    "advice",
    "calls_nothing",
    "deferred",
    "is_struct",
    "may_end_without_return",
    "misspelt",
    "reads_only",
    "returns_nothing",
    "takes",
]

_OTHER_HOOKS = frozenset(
    {"on_schedule", "on_timer", "on_event_time", "on_processing_time", "on_watermark", "on_item", "on_batch", "on_eof"}
)
"""Hooks of other logics and other stream processors, which users may expect malflow to call."""

_ALIKE = 0.75
"""The least likeness of a method to a hook, stricter than for names in messages. A lower one takes methods with names
of their own for misspelt hooks, a higher one misses typing errors."""

_DEFERRED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""The flags of code that runs only after the call."""

_IN_FRAMES = frozenset({"locals", "vars", "dir", "eval", "exec"})
"""Functions that see all local variables."""

_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})
"""The instructions that load one local variable, by versions of Python."""

_READING = (
    *("RESUME", "CACHE", "NOP", "COPY_FREE_VARS", "RETURN_VALUE", "RETURN_CONST"),
    *("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR", "STORE_FAST"),
    *("BINARY_OP", "BINARY_SUBSCR", "UNARY_", "COMPARE_OP", "CONTAINS_OP", "IS_OP", "BUILD_TUPLE"),
)
"""How the names of instructions begin that read, calculate, or make a tuple, by versions of Python."""

_ELSEWHERE = {
    **dict.fromkeys(("key_by", "keyby", "group_by", "groupby", "partition_by", "key_on"), "key_distribute"),
    **dict.fromkeys(("temporal_join", "lookup_join", "asof", "merge_asof", "join_asof"), "asof_join"),
    **dict.fromkeys(("reduce", "fold", "accumulate", "scan", "count", "sum", "agg"), "aggregate"),
    **dict.fromkeys(("update_state_by_key", "map_with_state", "map_groups_with_state"), "stateful_map"),
    **dict.fromkeys(("co_process", "co_map", "co_flat_map"), "connect"),
    **dict.fromkeys(("process", "flat_map_with_state", "flat_map_groups_with_state", "transform"), "stateful_op"),
    **dict.fromkeys(("foreach", "for_each", "peek", "tap"), "inspect"),
    **dict.fromkeys(("to", "add_sink", "sink_to", "output", "write", "write_stream", "save", "publish"), "sink"),
    **dict.fromkeys(("add_source", "from_source", "from_collection", "input", "read", "read_stream"), "source"),
    **dict.fromkeys(("with_watermark", "assign_watermarks", "watermark"), "event_time"),
    **dict.fromkeys(("assign_timestamps_and_watermarks", "with_timestamps"), "event_time"),
    **dict.fromkeys(("merge", "concat", "union_all"), "union"),
    **dict.fromkeys(("branch", "partition", "side_output"), "split"),
    **dict.fromkeys(("async_map", "map_concurrent", "ordered_wait", "unordered_wait", "async_wait"), "map_async"),
    **dict.fromkeys(("map_values", "select", "apply", "starmap", "with_column"), "map"),
    **dict.fromkeys(
        ("map_with_keys", "map_key_value", "map_values_with_key", "map_pairs", "map_items"), "map_with_key"
    ),
    **dict.fromkeys(("where", "filter_not"), "filter"),
    **dict.fromkeys(("explode", "unnest", "flatten_map", "concat_map"), "flat_map"),
    **dict.fromkeys(("drop_duplicates", "dedup", "deduplicate", "unique"), "distinct"),
    **dict.fromkeys(("distinct_until_changed", "stateful_distinct"), "changes"),
    **dict.fromkeys(("table", "to_ktable", "as_table", "to_dynamic_table"), "to_table"),
    **dict.fromkeys(("lookup_join", "temporal_join", "enrich"), "join_table"),
    **dict.fromkeys(("broadcast", "with_broadcast", "broadcast_join", "join_global_table"), "join_broadcast"),
    **dict.fromkeys(("sort_by", "order_by", "sort_values"), "sort"),
    **dict.fromkeys(("rate_limit", "limit"), "throttle"),
    **dict.fromkeys(("tee", "duplicate"), "cloned"),
}
"""malflow's names for the methods of other stream processors."""

_IN_WORDS = {
    **dict.fromkeys(
        ("windowed", "window_by", "window_all", "tumbling_window", "sliding_window", "session_window"),
        "call .key_distribute(), .window() with windows of malflow.windows, such as tumbling(60), and .aggregate()",
    ),
    **dict.fromkeys(
        ("join", "left_join", "right_join", "outer_join", "full_outer_join", "inner_join", "join_window"),
        "call .key_distribute() on both streams with the same key, then .interval_join(), .asof_join() or "
        ".join_table(), or .window() and .cogroup()",
    ),
    **dict.fromkeys(
        ("cogroup", "co_group", "group_join"),
        "call .key_distribute() on all streams with the same key, then .window() and .cogroup() with the others",
    ),
    **dict.fromkeys(
        ("collect", "to_list", "take", "head", "first", "to_pandas"),
        "call .sink() with a VecSink, which has the .values after the run",
    ),
    **dict.fromkeys(("print", "print_schema", "show", "debug"), "call .sink() with a StdOutSink, or .inspect()"),
    **dict.fromkeys(
        ("execute", "run", "start", "run_async", "await_termination"),
        "pass the function that builds the dataflow to SingleThreadRuntime(build_dataflow).execute()",
    ),
    "late": "only the stream that .event_time() returns has it, not streams derived from it; write "
    "timed = stream.event_time(...), then timed.late",
    **dict.fromkeys(("cache", "persist", "checkpoint"), "state is kept by persistence= of the runtime"),
    **dict.fromkeys(("set_parallelism", "parallelism"), "workers are set by parallelism= of the runtime"),
    **dict.fromkeys(
        ("name", "uid"),
        "the name of an operator is the first argument of the method that adds it",
    ),
}
"""Hints for methods of other stream processors that have no direct equivalent."""


def deferred(function: Any, *, generators: bool = False) -> str | None:
    """Return the kind of a function whose call creates an object without running its code; None for others.

    Args:
        function: anything callable: a function, a method, a partial, an object with a method ``__call__``.
        generators: whether generator functions are allowed.

    >>> async def get(value): ...
    >>> def count(value): yield value
    >>> deferred(get), deferred(partial(count, 1)), deferred(count, generators=True), deferred(len)
    ('a coroutine function', 'a generator function', None, None)
    """
    while isinstance(function, partial):
        function = function.func
    for target in (function, getattr(type(function), "__call__", None)):  # noqa: B004 - the attribute is inspected, not only tested for
        if inspect.iscoroutinefunction(target):
            return "a coroutine function"
        if inspect.isasyncgenfunction(target):
            return "an asynchronous generator function"
        if not generators and inspect.isgeneratorfunction(target):
            return "a generator function"
    return None


def takes(function: Any, count: int) -> bool:
    """Whether a function accepts this many positional arguments; True if its signature is unknown.

    For a decorated function, the signature of the decorator's wrapper counts.

    >>> takes(lambda part: part, 1), takes(lambda part: part, 2), takes(print, 2)
    (True, False, True)
    """
    try:
        inspect.signature(function, follow_wrapped=False).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # its signature is unknown to Python
        return True
    return True


def advice(method: str, methods: Collection[str]) -> str:
    """Return a hint for a missing stream method: the equivalent method, or one with a similar name.

    >>> advice("keyBy", ["key_distribute"]), advice("sinc", ["sink", "map"]), advice("xyz", ["sink"])
    ('; call .key_distribute()', '; did you mean .sink()?', '')
    """
    name = re.sub("(?<=[a-z])(?=[A-Z])", "_", method).lower()
    if name in methods:
        return f"; it is called .{name}()"
    if name in _ELSEWHERE:
        return f"; call .{_ELSEWHERE[name]}()"
    if name in _IN_WORDS:
        return f"; {_IN_WORDS[name]}"
    return did_you_mean(name, methods, else_="", write=lambda it: f".{it}()")


def misspelt(logic: object, hooks: Collection[str]) -> tuple[str, str | None] | None:
    """Return a method of a logic that looks like a misspelt hook, and the hook that it resembles, if any.

    >>> class Logic:
    ...     def on_epochs(self): ...
    ...     def on_arrival(self): ...
    >>> misspelt(Logic(), ("on_data", "on_epoch"))
    ('on_epochs', 'on_epoch')
    """
    plain = {hook.replace("_", ""): hook for hook in hooks}
    for name in dir(type(logic)):
        if name in hooks or not name.lower().startswith("on") or not callable(getattr(type(logic), name, None)):
            continue
        near = resembling(name.lower().replace("_", ""), plain, alike=_ALIKE)
        if near or name in _OTHER_HOOKS:
            return name, plain[near[0]] if near else None
    return None


_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_NEVER = ("NoReturn", "Never")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_Definition = ast.FunctionDef | ast.AsyncFunctionDef


def calls_nothing(function: Any) -> bool:
    """Whether a function, by its bytecode, only reads items and attributes of its argument and calculates with them.

    >>> calls_nothing(lambda trade: trade["price"] * trade["amount"]), calls_nothing(lambda text: text.strip())
    (True, False)
    """
    if type(function) is not FunctionType or function.__code__.co_flags & _DEFERRED:
        return False
    return all(it.opname.startswith(_READING) for it in dis.get_instructions(function.__code__))


def reads_only(function: Any, attribute: str) -> bool:
    """Whether a function, by its bytecode, reads one attribute of its first argument and uses it for nothing else.

    >>> reads_only(lambda msg: msg.value["town"], "value"), reads_only(lambda msg: (msg.key, msg.value), "value")
    (True, False)
    """
    if type(function) is not FunctionType or _IN_FRAMES.intersection(function.__code__.co_names):
        return False
    code = function.__code__
    if not code.co_argcount or code.co_flags & _DEFERRED or code.co_varnames[0] in code.co_cellvars:
        return False
    argument, read = code.co_varnames[0], False
    for instruction in dis.get_instructions(code):
        if read and (not instruction.opname.startswith("LOAD_ATTR") or instruction.argval != attribute):
            return False
        uses = "_FAST" in instruction.opname and _names(instruction.argval, argument)
        if uses and instruction.opname not in _LOADS:
            return False
        read = uses
    return not read


def _names(used: Any, name: str) -> bool:
    """Whether an instruction uses a local variable; from Python 3.13 on, one may use two of them."""
    return name in used if isinstance(used, tuple) else used == name


def returns_nothing(function: Any) -> bool:
    """Whether a function may end but has no ``return`` with a value; False if uncertain.

    ``return None`` counts as a value. False also for a lambda, a function not written in Python, a function that never
    ends (it always raises, or is annotated with `NoReturn`), and a generator function.

    >>> def forgetful(value): value += 1
    >>> def deliberate(value): return None
    >>> returns_nothing(forgetful), returns_nothing(partial(deliberate, 1)), returns_nothing(print)
    (True, False, False)
    """
    target = _written_in_python(function)
    if target is None or _is_said_not_to_end(target):
        return False
    code = target.__code__
    if code.co_flags & _RUNS_LATER or code.co_name == "<lambda>":
        return False
    ends = []
    for end, is_none in _ends(code):  # reading the rest of a long function takes longer than all else
        if not is_none:
            return False
        ends.append(end)
    if not ends:
        return False
    definition = _definition(code)
    if definition is None:
        return all(_is_implied(code, end) for end in ends)
    return all(it.value is None for it in _returns(definition))


def is_struct(thing: object) -> bool:
    """Whether a thing is a ``Struct`` class of msgspec."""
    return isinstance(thing, type) and hasattr(thing, "__struct_fields__")


def may_end_without_return(function: Any) -> bool:
    """Whether a function has a ``return`` with a value and may end without one.

    False if uncertain: for a function whose source can't be read, or that is not written in Python.
    """
    target = _written_in_python(function)
    definition = None if target is None or target.__code__.co_flags & _RUNS_LATER else _definition(target.__code__)
    if target is None or definition is None:
        return False
    written = list(_returns(definition))
    return any(it.value is not None for it in written) and any(
        is_none and not any(_is_within(end, it) for it in written) for end, is_none in _ends(target.__code__)
    )


def _written_in_python(function: Any) -> Any:
    """Return the function that a call runs first, such as a wrapper, if it is written in Python."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return None
    for target in (function, getattr(function, "__func__", None), getattr(type(function), "__call__", None)):  # noqa: B004 - the attribute is inspected, not only tested for
        if isinstance(getattr(target, "__code__", None), CodeType):
            return target
    return None


def _is_said_not_to_end(function: Any) -> bool:
    said = getattr(function, "__annotations__", {}).get("return")
    return str(said).rpartition(".")[2] in _NEVER


def _ends(code: CodeType) -> Iterator[tuple[dis.Instruction, bool]]:
    """Yield the instructions that end a function by returning, and whether each returns the constant None."""
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST":
            yield instruction, instruction.argval is None
        elif instruction.opname == "RETURN_VALUE":
            is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            yield instruction, is_none and not instruction.is_jump_target
        before = instruction


def _is_implied(code: CodeType, end: dis.Instruction) -> bool:
    """Whether the None is implied by the end of another statement, rather than returned by ``return None``."""
    if end.positions is None or end.positions.col_offset is None:
        return False
    own = ("RETURN_CONST", "RETURN_VALUE", "NOP")
    return any(
        it.positions == end.positions and it.opname not in own and not (it.opname == "LOAD_CONST" and it.argval is None)
        for it in dis.get_instructions(code)
    )


def _is_within(end: dis.Instruction, written: ast.Return) -> bool:
    at = end.positions
    if at is None or at.lineno is None or at.col_offset is None:
        return True
    first, last = (written.lineno, written.col_offset), (written.end_lineno or 0, written.end_col_offset or 0)
    return first <= (at.lineno, at.col_offset) < last


def _definition(code: CodeType) -> _Definition | None:
    """Return the definition of a function in its source; None if there is no source, or it has changed."""
    lines = linecache.getlines(code.co_filename)
    return None if not lines else _definitions("".join(lines)).get((code.co_name, code.co_firstlineno))


@lru_cache(maxsize=8)
def _definitions(source: str) -> dict[tuple[str, int], _Definition]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # it has changed since, or is not only Python
        return {}
    found = [it for it in ast.walk(tree) if isinstance(it, _Definition)]
    return {(it.name, min([it.lineno, *(mark.lineno for mark in it.decorator_list)])): it for it in found}


def _returns(definition: _Definition) -> Iterator[ast.Return]:
    """Yield the returns of a function, but not of functions and classes in it."""
    nodes: list[ast.AST] = list(definition.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            nodes.extend(ast.iter_child_nodes(node))
