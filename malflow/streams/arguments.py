"""Checks of the arguments of stream methods; they raise `GraphError` with the user's file and line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import Any, Literal

from malflow.aggregators.fields import read
from malflow.callables import misspelt, takes
from malflow.checks import Cures, check_function, check_whole_number, checked_duration, checked_length
from malflow.connectors.by_name import Connection, Replacement
from malflow.diagnostics import location
from malflow.errors import ConfigFault, GraphError, check_methods, offers
from malflow.failures import ErrorPolicy, OnError, policy_of
from malflow.graph import Graph, check_name
from malflow.operators.connected import TwoFunctions
from malflow.sinks.contract import StatefulSink, StatefulSinkImpl, StatelessSink, StatelessSinkImpl
from malflow.sources.contract import StatefulSource, StatefulSourceImpl, StatelessSource, StatelessSourceImpl
from malflow.words import short_repr

__all__ = [
    "CONNECT_HOOKS",
    "STATEFUL_HOOKS",
    "STATELESS_HOOKS",
    "check_count",
    "check_places",
    "checked_default",
    "checked_field_of",
    "checked_function",
    "checked_idleness",
    "checked_logic",
    "checked_policy",
    "checked_sink",
    "checked_source",
    "checked_step",
    "checked_two",
    "location",
    "malformed",
]


def malformed(name: object, what: str) -> GraphError:
    """Return the error for an operator that cannot be added, with the location in the user's code."""
    operator = name if isinstance(name, str) else None
    subject = f"operator {name!r}" if isinstance(name, str) else "an operator"
    return GraphError(f"{subject} {what}", operator=operator, location=location())


def _source_instead(source: Any) -> str:
    if isinstance(source, type):
        return f"write {source.__name__}(...)"
    if isinstance(source, (StatelessSink, StatefulSink, StatelessSinkImpl, StatefulSinkImpl)):
        return "that is a sink: call .sink() on a stream that has a source"
    if offers(source, "build_part"):
        return f"write {'StatelessSource' if takes(source.build_part, 1) else 'StatefulSource'}(...)"
    return "write SingleIteratorSource(...)" if isinstance(source, Iterable) else "write StatelessSource(...)"


def _sink_instead(sink: Any) -> str:
    if isinstance(sink, type):
        return f"write {sink.__name__}(...)"
    if isinstance(sink, (StatelessSource, StatefulSource, StatelessSourceImpl, StatefulSourceImpl)):
        return "that is a source: call .source() on provider.new_stream()"
    if offers(sink, "assign_part"):
        return "write StatefulSink(...)"
    if callable(sink):
        return "call .inspect() for a function, or write StatelessSink(...) with an object that has sink(msg)"
    return "write StatelessSink(...)"


STATELESS_HOOKS = {"on_data": "msg, output", "on_epoch": "epoch, output"}
STATEFUL_HOOKS = {
    "on_data": "msg, state, output",
    "on_epoch": "epoch, states, output",
    "on_schedule": "states, output",
    "on_timer": "key, at, state, output",
}
CONNECT_HOOKS = {
    "on_left": "msg, state, output",
    "on_right": "msg, state, output",
    **{hook: arguments for hook, arguments in STATEFUL_HOOKS.items() if hook != "on_data"},
}
"""The methods that a logic may have, with their arguments."""

_CURES = {
    "mapper": Cures(
        "return the value; call .map_async() for a coroutine function, .flat_map() to yield any number of values",
        "end it with a return, call .inspect() for a function that only looks at records",
    ),
    "logic": Cures(
        "send messages by output.send(DataMessage(...))",
        "end it with 'return state', call .stateless_op() for one without state",
    ),
    "function": Cures(forgetful="return the values, or yield them"),
}
"""Remedies for functions whose calls have no result, by role."""


def checked_source(
    name: str, source: Any, graph: Graph
) -> StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any]:
    """Return the source, or the one that its configuration names; wrapped if it is an implementation."""
    check_name(name, location())
    source = _connected(name, source, graph, "source")
    if isinstance(source, StatelessSourceImpl):
        return StatelessSource(source)
    if isinstance(source, StatefulSourceImpl):
        return StatefulSource(source)
    if isinstance(source, (StatelessSource, StatefulSource)):
        return source
    raise malformed(
        name, f"needs a StatelessSource or a StatefulSource; got {short_repr(source)}; {_source_instead(source)}"
    )


def _connected(name: str, made: Any, graph: Graph, role: Literal["source", "sink"]) -> Any:
    """Return the source or sink of the code, or the one that the configuration of the operator names.

    If that is impossible, the graph gets the fault, for all to be told at once, and it is the one of the code.

    Raises:
        GraphError: if no connector can make that of the code.
    """
    replacement = graph.replacements.get(name)
    if replacement is not None:
        try:
            return _replaced(name, made, replacement, role)
        except GraphError as error:
            reason = f"operators.{name}: {error.reason}"
            graph.misconfigured.append(ConfigFault(f"operators.{name}", replacement.origin, reason))
    return getattr(made, role)() if isinstance(made, Connection) else made


def _replaced(name: str, made: Any, replacement: Replacement, role: Literal["source", "sink"]) -> Any:
    """Return the source or sink that a configuration names.

    Raises:
        GraphError: if the code does not make it by `connect`, or no connector can make it.
    """
    if isinstance(made, Connection):
        return getattr(made.replaced(replacement), role)()
    place = f" at {found}" if (found := location()) else ""
    raise GraphError(
        f"the code{place} does not make '{name}' by connect(); write .{role}({name!r}, connect(...)) there, or remove "
        "the URL and the options here"
    )


def checked_sink(
    name: str, sink: Any, graph: Graph
) -> StatelessSink[Any, Any, Any] | StatefulSink[Any, Any, Any, Any, Any]:
    """Return the sink, or the one that its configuration names; wrapped if it is an implementation."""
    check_name(name, location())
    sink = _connected(name, sink, graph, "sink")
    if isinstance(sink, StatelessSinkImpl):
        return StatelessSink(sink)
    if isinstance(sink, StatefulSinkImpl):
        return StatefulSink(sink)
    if isinstance(sink, (StatelessSink, StatefulSink)):
        return sink
    raise malformed(name, f"needs a StatelessSink or a StatefulSink; got {short_repr(sink)}; {_sink_instead(sink)}")


def checked_table(name: str, table: Any) -> Any:
    """Return the table of a look-up: an object with ``get_many(keys)``."""
    check_name(name, location())
    if isinstance(table, Connection):
        return table.lookup()
    check_methods(table, f"operator {name!r} table", ("get_many",))
    return table


def check_count(name: str, count: Any, what: str) -> None:
    """Check that an argument of an operator, such as ``version``, is a positive whole number."""
    check_whole_number(partial(malformed, name), what, count)


def check_places(name: str, role: str, field: Any) -> None:
    """Check an argument that is the name of a field, or the place of one, or a tuple of places."""
    places = field if isinstance(field, tuple) else () if isinstance(field, str) else (field,)
    for place in places:
        check_whole_number(partial(malformed, name), f"place in {role}" if places is field else role, place, least=0)
    if places == () and field == ():
        raise malformed(name, f"{role} is an empty tuple; give the place of an item")


def checked_field_of(name: str, role: str, field: Any) -> Callable[[Any], Any] | None:
    """Return a function that reads a field of a value, from a function or the name of an item or attribute.

    Args:
        name: the operator's name.
        role: the name of the argument.
        field: the argument; None stands for the value itself.
    """
    if isinstance(field, str):
        return partial(read, field)
    return None if field is None else checked_function(name, role, field, "value")


def checked_step(name: str, every: Any, bound: Any) -> Any:
    """Check the step of epochs, and return it; None is allowed.

    Args:
        name: the operator's name.
        every: the argument.
        bound: the duration that the generator subtracts from timestamps; None if unknown.
    """
    if every is None:
        return None
    every = checked_length(partial(malformed, name), "every", every)
    if isinstance(bound, (Real, Decimal) if isinstance(every, timedelta) else timedelta):
        raise malformed(
            name,
            f"has a bound of {short_repr(bound)} and an every of {short_repr(every)}; both must fit the timestamps: "
            "use two timedeltas for datetimes, or two numbers for numbers",
        )
    return every


def checked_idleness(name: str, idle_after: Any, second: Any) -> tuple[timedelta | None, Any]:
    """Check the silence after which time advances and the units per second, and return both."""
    if idle_after is not None:
        idle_after = checked_duration(partial(malformed, name), "idle_after", idle_after, or_else="None")
    if second is None:
        return idle_after, None
    if isinstance(checked_length(partial(malformed, name), "second", second), timedelta):
        raise malformed(name, f"second must be a positive number; got {short_repr(second)}")
    if idle_after is None:
        raise malformed(name, "has a second= without idle_after=, which alone needs it")
    return idle_after, second


def checked_function(
    name: str, role: str, function: Any, arguments: str, *, generators: bool = False, returns: bool = True
) -> Any:
    """Check that the operator can call a function and gets a result; return the function.

    Args:
        name: the operator's name.
        role: the name of the argument.
        function: the argument.
        arguments: the arguments that the operator passes, such as ``key, value``.
        generators: whether a generator function is allowed.
        returns: whether its result matters.
    """
    check_name(name, location())
    check_function(
        partial(malformed, name),
        role,
        function,
        arguments=arguments,
        generators=generators,
        returns=returns,
        cures=_CURES.get(role, Cures()),
    )
    return function


def checked_logic(name: str, logic: Any, hooks: Mapping[str, str], *, returns: bool = False) -> Any:
    """Check the hooks of a logic, and return the logic.

    Args:
        name: the operator's name.
        logic: the argument: a function, or an object with some of the hooks.
        hooks: the methods that the operator calls, with their arguments.
        returns: whether the result of the function, or of `on_data`, matters.
    """
    check_name(name, location())
    if isinstance(logic, type):
        raise malformed(name, f"needs a logic object; got the class {logic.__name__}; write {logic.__name__}()")
    if not offers(logic, "on_data" if hasattr(logic, "on_data") else "__call__"):
        raise malformed(name, f"needs a logic with a method on_data(), or a function; got {short_repr(logic)}")
    if not hasattr(logic, "on_data"):
        return checked_function(name, "logic", logic, hooks["on_data"], returns=returns)
    _check_hooks(name, logic, hooks, ("on_data",) if returns else ())
    return logic


def checked_two(name: str, on_left: Any, on_right: Any) -> Any:
    """Check the two functions of a `connect`, or its logic, and return a logic.

    Args:
        name: the operator's name.
        on_left: the function for the messages of the stream itself, or a logic with all hooks.
        on_right: the function for the messages of the other stream; None with a logic.
    """
    check_name(name, location())
    if on_right is not None:
        arguments = CONNECT_HOOKS["on_left"]
        left, right = (
            checked_function(name, role, function, arguments)
            for role, function in (("on_left", on_left), ("on_right", on_right))
        )
        return TwoFunctions(left, right)
    if isinstance(on_left, type):
        raise malformed(name, f"needs a logic object; got the class {on_left.__name__}; write {on_left.__name__}()")
    missing = [hook for hook in ("on_left", "on_right") if not offers(on_left, hook)]
    if missing:
        raise malformed(
            name,
            f"needs a function for each of its two streams, on_left and on_right, or a logic object with methods of "
            f"these names; got {short_repr(on_left)} without {' and '.join(missing)}; write "
            f".connect({name!r}, other, on_left, on_right)",
        )
    _check_hooks(name, on_left, CONNECT_HOOKS, ("on_left", "on_right"))
    return on_left


def _check_hooks(name: str, logic: Any, hooks: Mapping[str, str], returning: Collection[str]) -> None:
    """Check the methods of a logic, some of which must return a state."""
    found = misspelt(logic, hooks)
    if found is not None:
        meant = f"write {found[1]}()" if found[1] else f"the hooks are {', '.join(f'{hook}()' for hook in hooks)}"
        raise malformed(name, f"has a logic with a method {found[0]}(), which is never called; {meant}")
    for hook, arguments in hooks.items():
        if callable(getattr(logic, hook, None)):
            check_function(
                partial(malformed, name),
                hook,
                getattr(logic, hook),
                arguments=arguments,
                returns=hook in returning,
                cures=_CURES["logic"],
            )


def checked_policy(name: str, on_error: ErrorPolicy) -> OnError:
    """Check the policy for failed records, and return it."""
    check_name(name, location())
    try:
        return policy_of(on_error)
    except GraphError as error:
        raise malformed(name, f"can't have this policy: {error.reason}") from None


def checked_default(name: str, default: Any) -> Any:
    """Check the factory of default states, and return it; None is allowed."""
    if default is not None and not callable(default):
        raise malformed(
            name,
            f"needs a function that creates a state as its default; got {short_repr(default)}; "
            f"write lambda: {short_repr(default)}",
        )
    return None if default is None else checked_function(name, "default", default, "")
