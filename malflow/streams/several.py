"""Several streams as one result: named tuples that say which stream to take where one is meant."""

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
    """Make a named tuple name its streams where a method of a stream is called on it."""
    names = vars(kind)["_fields"]
    shown, fields = kind.__name__, ", ".join(names)

    def refuse(self: Any, attribute: str) -> NoReturn:
        if attribute.startswith("_"):
            raise AttributeError(f"{shown!r} object has no attribute {attribute!r}", name=attribute, obj=self)
        getattr(self[0], attribute)  # raises the error for what is no method of a stream either
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
        on_time: the records above the epochs before them.
        late: the records at or behind the epoch.
    """

    on_time: S_co
    late: S_co


@_tells_its_streams
class Throttled(NamedTuple, Generic[K, V, T]):
    """The records of a limited stream.

    Attributes:
        passed: those within the limit.
        held_back: the others.
    """

    passed: KeyedStream[K, V, T]
    held_back: KeyedStream[K, V, T]


@_tells_its_streams
class LateResults(NamedTuple, Generic[K, R, V, T]):
    """The results of windows that late records are added to.

    Attributes:
        results: the results of the windows.
        revised: those that were revised by records that came after their windows had closed.
        too_late: the records that came too late.
    """

    results: KeyedStream[K, WindowResult[R, T], T]
    revised: KeyedStream[K, WindowResult[R, T], T]
    too_late: KeyedStream[K, V, T]

    def with_revisions(self) -> KeyedStream[K, WindowResult[R, T], T]:
        """Return the results and the revised ones as one stream, for sinks that replace the row of a window.

        A window's result comes before its revisions, and these in their order. The name is that of
        ``results.union(revised)``.
        """
        return self.results.union(self.revised)


@_tells_its_streams
class LateGroups(NamedTuple, Generic[K, R, T]):
    """The groups of windows that late records are added to.

    Attributes:
        results: the results of the windows.
        too_late: for each of the streams, its records that came too late.
    """

    results: KeyedStream[K, WindowResult[R, T], T]
    too_late: list[KeyedStream[K, Any, T]]


@_tells_its_streams
class Matches(NamedTuple, Generic[K, M, V, T]):
    """What was found of a pattern.

    Attributes:
        matches: the matches, with the time of their last event, or of the deadline of the absence that they waited for.
        timeouts: the partial matches that were not finished in time: one for each first event that has no match and was
            not used up by one, with the time of the deadline.
        late: the records at or behind the epoch (watermark), which were not matched.
    """

    matches: KeyedStream[K, Match[K, M, T], T]
    timeouts: KeyedStream[K, Match[K, M, T], T]
    late: KeyedStream[K, V, T]
