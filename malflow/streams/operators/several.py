"""Named tuples of streams, for methods that return several; their errors name the streams to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

if TYPE_CHECKING:
    from malflow.patterns import Match
    from malflow.streams.stream import KeyedStream
    from malflow.windows import WindowResult

__all__ = ["LateGroups", "LateResults", "Matches", "Throttled", "Timed"]

C = TypeVar("C", bound=type)
K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M")
R = TypeVar("R")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")


def _tells_its_streams(kind: C) -> C:
    """Make a named tuple list its streams in the error when a stream method is called on it."""
    names = vars(kind)["_fields"]
    shown, fields = kind.__name__, ", ".join(names)

    def refuse(self: Any, attribute: str) -> NoReturn:
        if attribute.startswith("_"):
            raise AttributeError(f"{shown!r} object has no attribute {attribute!r}", name=attribute, obj=self)
        getattr(self[0], attribute)  # raises the error for any other attribute
        raise AttributeError(
            f"{shown} is not a stream, but has several: {fields}; take one first, such as "
            f".{names[0]}.{attribute}(...), or write {fields} = ...",
            name=attribute,
            obj=self,
        )

    setattr(kind, "__getattr__", refuse)  # noqa: B010 - mypy forbids the assignment
    return kind


@_tells_its_streams
class Timed(NamedTuple, Generic[S_co]):
    """A stream with epochs (watermarks).

    Attributes:
        on_time: the records after the epoch.
        late: the records at or before the epoch.
    """

    on_time: S_co
    late: S_co


@_tells_its_streams
class Throttled(NamedTuple, Generic[K, V, T]):
    """The records of a limited stream.

    Attributes:
        passed: the records within the limit.
        held_back: the others.
    """

    passed: KeyedStream[K, V, T]
    held_back: KeyedStream[K, V, T]


@_tells_its_streams
class LateResults(NamedTuple, Generic[K, R, V, T]):
    """The results of windows that also receive late records.

    Attributes:
        results: the results of the windows.
        revised: results revised because a late record reached a closed window.
        too_late: the records that were too late.
    """

    results: KeyedStream[K, WindowResult[R, T], T]
    revised: KeyedStream[K, WindowResult[R, T], T]
    too_late: KeyedStream[K, V, T]

    def with_revisions(self) -> KeyedStream[K, WindowResult[R, T], T]:
        """Return the results and the revised ones as one stream, for sinks that replace the row of a window.

        A window's result precedes its revisions. Revisions are in order. The operator has the name of
        ``results.union(revised)``.
        """
        return self.results.union(self.revised)


@_tells_its_streams
class LateGroups(NamedTuple, Generic[K, R, T]):
    """The groups of windows that also receive late records.

    Attributes:
        results: the results of the windows.
        too_late: for each stream, its records that were too late.
    """

    results: KeyedStream[K, WindowResult[R, T], T]
    too_late: list[KeyedStream[K, Any, T]]


@_tells_its_streams
class Matches(NamedTuple, Generic[K, M, V, T]):
    """The matches of a pattern, and the records and partial matches without one.

    Attributes:
        matches: the matches, with the timestamp of their last event, or of the deadline of the absence that they ended
            with.
        timeouts: the partial matches that were not completed in time, with the timestamp of the deadline: one for each
            first event that has no match and was not discarded by one.
        late: the records at or before the epoch (watermark); they were not matched.
    """

    matches: KeyedStream[K, Match[K, M, T], T]
    timeouts: KeyedStream[K, Match[K, M, T], T]
    late: KeyedStream[K, V, T]
