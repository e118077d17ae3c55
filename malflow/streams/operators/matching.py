"""Methods of keyed streams that find patterns of events.

The machinery of patterns is imported when a pattern is matched: most programs have none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from malflow.checks import check_choice
from malflow.errors import GraphError
from malflow.graph import check_name
from malflow.operators.epochs.frontiers import REACHED
from malflow.states.kinds import StateKind
from malflow.streams.arguments import check_count, checked_field_of, checked_function, location, malformed
from malflow.streams.operators.several import Matches
from malflow.streams.operators.stateful import StatefulOperators
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.patterns import Match, Pattern

__all__ = ["MatchOperators", "Matches"]

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
M = TypeVar("M")
T = TypeVar("T")


class MatchOperators(StatefulOperators[K, V_co, T]):
    """Methods that find patterns of events."""

    __slots__ = ()

    def match(
        self,
        name: str,
        pattern: Pattern[M],
        *,
        after: Literal["end", "start", "all"] = "end",
        limit: int = 1_000,
        overflow: Literal["fail", "oldest"] = "fail",
        order: Literal["time", "arrival"] = "time",
        ties: Callable[[V_co], Any] | str | None = None,
        kind: Callable[[V_co], Any] | str | None = None,
        version: int = 1,
        migrate: Callable[[list[Match[Any, Any, Any]], int], list[Match[Any, Any, Any]]] | None = None,
    ) -> Matches[K, M, V_co, T]:
        """Find a pattern in the records of each key.

        Records wait for an epoch (watermark) and are matched in the order of their timestamps; those with equal
        timestamps, in order of arrival. A match is emitted at its earliest end.

        Args:
            name: the operator's name; snapshots store partial matches and waiting records under it.
            pattern: the pattern: see `malflow.patterns`.
            after: which partial matches a match discards. ``end``: all that began up to its last event, so matches of a
                key share no events, and the one that ends first wins. ``start``: all that began with its first event,
                for one match per first event. ``all``: none.
            limit: the maximum number of partial matches of a key.
            overflow: ``fail`` to raise an error beyond the limit; ``oldest`` to drop the oldest ones.
            order: ``arrival`` to match records as they arrive; absences and timeouts still wait for epochs.
            ties: a function of a value, or the name of its item or attribute, by which records with one timestamp are
                ordered.
            kind: a function that returns the kind of a value, or the name of the item or attribute that holds it, for
                steps whose kind is not a class. It is called once per record for all steps.
            version: increase it when the steps of the pattern or their order change; without `migrate`, this drops
                partial matches. Numbers, durations and predicates may change at any time.
            migrate: ``(partials, old_version) -> partials``: converts the partial matches of a key. They are a list of
                matches with the key None. Their events are assigned to the steps that they name.

        Raises:
            GraphError: if the pattern is incomplete, an argument is invalid, or the stream has no epochs.

        >>> def rising(stream):
        ...     on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        ...     rise = step("rise", given=lambda value, so_far: not so_far["rise"] or value > so_far.last("rise"))
        ...     found = on_time.key_distribute("all", lambda msg: "all").match("rising", rise.times(3, by="next"))
        ...     return found.matches.map("values", lambda match: match["rise"])
        >>> run([5, 1, 2, 4, 3], rising)
        [[1, 2, 4]]
        """
        from malflow.operators.pattern_matching import COUNTS, MatchByArrival, MatchByTime  # noqa: PLC0415 - see above
        from malflow.patterns.flat import PartialMigration  # noqa: PLC0415 - see above

        definition = self._checked_match(name, pattern, after, limit, overflow, order, ties, kind)
        kind, ties = pattern.checked_kind(kind), checked_field_of(name, "ties", ties)
        options: dict[str, Any] = {"kind": kind, "after": after, "limit": limit, "drops_oldest": overflow == "oldest"}
        options["is_on_time"] = self._graph.is_on_time(self._input(name))
        logic: Any = partial(MatchByArrival, pattern=pattern, **options)
        if order == "time":
            logic = partial(MatchByTime, pattern=pattern, ties=ties, **options)
        if migrate is not None:
            checked_function(name, "migrate", migrate, "partials, old_version")
        streams = self._stateful(
            name,
            logic,
            StateKind.MATCH,
            version,
            PartialMigration(pattern.automaton, migrate),
            hidden=((REACHED, StateKind.EPOCHS),),
            definition=definition,
            outputs=3,
            counts=COUNTS,
        )
        return Matches(*streams)

    def _checked_match(
        self,
        name: str,
        pattern: Any,
        after: object,
        limit: Any,
        overflow: object,
        order: object,
        ties: Any,
        kind: Any,
    ) -> str:
        """Check the arguments of a match; return the definition of its states."""
        from malflow.patterns import Pattern  # noqa: PLC0415 - see above
        from malflow.patterns.checks import check_after  # noqa: PLC0415 - see above

        check_name(name, location())
        if not isinstance(pattern, Pattern):
            raise malformed(name, f"needs a pattern, such as step(...).then(...); got {short_repr(pattern)}")
        check_count(name, limit, "limit")
        check_choice(partial(malformed, name), "overflow", overflow, ("fail", "oldest"))
        check_choice(partial(malformed, name), "order", order, ("time", "arrival"))
        if ties is not None and order == "arrival":
            raise malformed(name, "has ties=, which are for the order of time, and order='arrival'; drop one")
        try:
            pattern.check()
            pattern.checked_kind(kind)
            check_after(after)
        except GraphError as error:
            raise malformed(name, f"can't find it: {error.reason}") from None
        if order == "time" and not self._graph.has_epochs(self._input(name)):
            raise malformed(
                name,
                "has no epochs (watermarks), so its records would wait until the end; call .event_time() or "
                ".generate_epochs() before, or pass order='arrival'",
            )
        return f"a match of {pattern.shape}"
