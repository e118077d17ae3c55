"""Examples of matches of patterns, found in given records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from malflow import DataMessage, GraphError
from malflow.patterns import Match, Pattern, absent, step

a, b, c, f, s = (step(name, lambda value, name=name: name in value) for name in "abcfs")  # type: ignore[misc]


def shown(matches: Sequence[Match[Any, Any, Any]]) -> str:
    """Return matches as text: each event's step and time, and with a ``!`` the end of one that is not its last time."""
    return "; ".join(" ".join(f"{event.step}@{event.timestamp}" for event in match.events) for match in matches)


def events(text: str) -> list[DataMessage[str, str, int]]:
    """Return messages: ``a b@5 ab`` is an a at 0, a b at 5, and at 6 what is both."""
    messages: list[DataMessage[str, str, int]] = []
    time = -1
    for word in text.split():
        value, _, at = word.partition("@")
        time = int(at) if at else time + 1
        messages.append(DataMessage("key", value, time))
    return messages


@pytest.mark.parametrize(
    ("pattern", "history", "after", "matches"),
    [
        (a.then(b), "a b b", "start", "a@0 b@1"),
        (a.then(b.optional()).then(c), "a b c", "start", "a@0 b@1 c@2"),
        (a.then(b.optional()).then(c), "a c", "start", "a@0 c@1"),
        (f.at_least(1).then(s), "f f s", "start", "f@0 f@1 s@2; f@1 s@2"),
        (f.at_least(3), "f f f f f f", "end", "f@0 f@1 f@2; f@3 f@4 f@5"),
        (a.then(b, without=c), "a bc", "start", "a@0 b@1"),
        (a.then(b, without=c), "a c b", "start", ""),
        (a.then(b & c), "a c b", "start", "a@0 c@1 b@2"),
        (a.then_not(c, during=5), "a c@5", "start", ""),
        (a.then_not(c, during=5), "a c@6", "start", "a@0"),
        (a.then_not(b, during=5).then(c), "a c@3 c@6", "start", "a@0 c@6"),
        (a.then_not(b, during=5).then(c), "a c@5 c@6", "start", "a@0 c@6"),
        (f.at_least(3).then_not(f, during=5), "f f f f f@20", "end", "f@0 f@1 f@2 f@3"),
        (f.at_least(3).then_not(f).within(10), "f f f f f@20", "end", "f@0 f@1 f@2 f@3"),
        (f.times(3).then(s).within(300), "f f@200 f@250 f@301 s", "end", "f@200 f@250 f@301 s@302"),
        (a.then(b).within(5), "a b@5", "end", "a@0 b@5"),
        (a.then(b).within(5), "a b@6", "end", ""),
        (a.then(b.optional()).then(c, within=2), "a b@3 c@5", "end", "a@0 b@3 c@5"),
        (a.then(b.optional()).then(c, within=2), "a c@2", "end", "a@0 c@2"),
        (a.next(b), "a x b a b", "end", "a@3 b@4"),
        (a.then_any(b), "a b b", "all", "a@0 b@1; a@0 b@2"),
        (a.then(b), "a a b", "start", "a@0 b@2; a@1 b@2"),
        (a.then(b), "a a b", "end", "a@0 b@2"),
        (a.then(b), "ab ab", "end", "a@0 b@1"),
        (absent(c, during=5).then(a), "a c a@7 a@9", "end", "a@0; a@7; a@9"),
        (absent(c, during=5).then(a), "c a@5 a@6", "end", "a@6"),
        (absent(c, during=0).then(a), "ca ca@0", "end", "a@0"),
        (absent(a, during=5).then(a), "a a@3 a@9", "end", "a@0; a@9"),
        (a | b.then(c), "b a c", "start", "a@1; b@0 c@2"),
        (a.then(a), "a a", "end", "a@0 a@1"),
    ],
)
def test_matches(pattern: Pattern[Any], history: str, after: Any, matches: str) -> None:
    assert shown(pattern.find(events(history), after=after)) == matches


@pytest.mark.parametrize(
    ("pattern", "history", "after", "timeouts"),
    [
        (f.times(3).then(s).within(300), "f f@200 f@250 f@301 s", "end", "f@0 f@200 f@250"),
        (f.at_least(3).then_not(f).within(10), "f f f f f@20", "end", "f@20"),
        (a.then(b).within(5), "a a b@6", "end", "a@0"),
        (a.then(b, within=5).then(c), "a b", "end", ""),
        (a.then(b, within=5).then(c, within=5), "a b c@9", "end", "a@0 b@1"),
        (a.then_not(b, during=5), "a", "end", ""),
        (a.then(c, without=b).within(5), "a b", "end", ""),
        (a.then_any(b).within(5), "a b", "all", ""),
        (a.then_any(b).within(5), "a a b@6", "all", "a@0"),
        (a.then(b).within(5), "a a b", "end", ""),
        (a.then(b, within=5) | a.then(c, within=3), "a", "end", "a@0"),
    ],
)
def test_starts_that_are_not_finished_in_time(pattern: Pattern[Any], history: str, after: Any, timeouts: str) -> None:
    assert shown(pattern.find(events(history), after=after).timeouts) == timeouts


def test_a_match_has_its_events_by_step() -> None:
    (match,) = f.times(2).then(s).find(events("f@3 x f f s"))
    assert (match.key, match.start, match.end) == ("key", 3, 7)
    assert (match["f"], match.first("f"), match.last("s")) == (["f", "f"], "f", "s")
    with pytest.raises(KeyError, match="the pattern has no step 'x'; there are 'f', 's'"):
        match["x"]


def test_a_step_that_took_nothing_has_no_values() -> None:
    (match,) = a.then(b.optional()).then(c).find(events("a c"))
    assert (match["b"], match.first("b"), match.last("b")) == ([], None, None)


def test_records_are_matched_in_the_order_of_time_and_then_of_arrival() -> None:
    history = [DataMessage(None, value, at) for value, at in [("b", 3), ("a", 1), ("b", 1), ("a", 3)]]
    assert shown(a.then(b).find(history, after="start")) == "a@1 b@1"


def test_keys_are_matched_apart() -> None:
    history = [DataMessage(key, value, 0) for key, value in [(1, "a"), (2, "b"), (2, "a"), (1, "b")]]
    assert [match.key for match in a.then(b).find(history)] == [1]


def test_durations_fit_datetimes() -> None:
    noon, minute = datetime(2026, 5, 1, 12), timedelta(minutes=1)
    history = [DataMessage("key", value, noon + at * minute) for value, at in [("a", 0), ("b", 5), ("a", 6)]]
    pattern = a.then(b).within(5 * minute)
    assert [match.end for match in pattern.find(history)] == [noon + 5 * minute]
    assert [match.start for match in pattern.find(history).timeouts] == [noon + 6 * minute]


def test_branches_that_begin_alike_are_one_and_matched_once() -> None:
    either = (a.then(b, within=9) | a.then(b, within=3)).then(c)
    assert shown(either.find(events("a b c"), after="all")) == "a@0 b@1 c@2"


def test_a_later_start_lives_on_when_an_earlier_one_expires() -> None:
    pattern = a.times(2).then(b).within(5)
    assert shown(pattern.find(events("a a@4 a@6 b@7"))) == "a@4 a@6 b@7"


def test_starts_before_and_behind_a_match_that_waits_have_two_futures() -> None:
    pattern = (c & b).then_not(c, during=5)
    assert shown(pattern.find(events("ac@3 b@5 ab@8 b@10 ac@12 b@14"))) == "c@3 b@5; b@8 c@12"


def test_a_match_of_absence_uses_up_its_events_and_not_its_wait() -> None:
    pattern = a.then_not(c, during=5)
    assert shown(pattern.find(events("a a@3 a@9"))) == "a@0; a@3; a@9"


def test_the_condition_on_the_match_so_far_sees_this_match_only() -> None:
    rise = step("rise", given=lambda value, so_far: not so_far["rise"] or value > so_far.last("rise"))
    assert [match["rise"] for match in rise.times(3, by="next").find([3, 5, 4, 6, 7, 8])] == [[4, 6, 7]]
    assert [match["rise"] for match in rise.times(3).find([3, 5, 4, 6])] == [[3, 5, 6]]


def test_a_condition_on_an_unknown_step_names_those_there_are() -> None:
    pattern = a.then(step("more", given=lambda value, so_far: value > so_far.last("A")))
    with pytest.raises(KeyError, match="the pattern has no step 'A'; there are 'a', 'more'"):
        pattern.find(events("a a"))


def test_the_number_of_partial_matches_is_limited() -> None:
    pattern = a.then_any(step("b")).then_any(step("c")).then_any(step("d"))
    with pytest.raises(RuntimeError, match="partial matches for key 'key', the limit is 1,000; bound it with"):
        pattern.find(events("a " * 100), after="all")


class Order:
    pass


class LargeOrder(Order):
    pass


def test_a_class_is_the_kind_of_its_instances_and_of_derived_classes() -> None:
    large: list[Order] = [Order(), LargeOrder()]
    pattern = step("order", Order).then(step("large", LargeOrder))
    assert [match["large"] for match in pattern.find(["x", *large, 3])] == [large[1:]]


def test_predicates_are_called_for_values_of_their_kind_only() -> None:
    pattern = step("word", str, lambda word: word.startswith("a")).then(step("number", int | float, lambda it: it > 2))
    assert [match.events for match in pattern.find([1, "b", "abc", None, 1, 2.5])] == [
        (("word", "abc", 2), ("number", 2.5, 5))
    ]


def test_kinds_are_looked_up() -> None:
    pattern = step("failed", "F").then(step("any")).then(step("login", "L", lambda value: value[1] > 1))
    values = [("L", 9), ("F", 1), ("x", 2), ("L", 1), ("L", 2)]
    (match,) = pattern.find(values, kind=lambda value: value[0])
    assert [event.timestamp for event in match.events] == [1, 2, 4]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7])
def test_any_number_of_predicates_makes_a_column(count: int) -> None:
    steps = [step(str(number), lambda value, number=number: value % count == number) for number in range(count)]  # type: ignore[misc]
    pattern = steps[0]
    for one in steps[1:]:
        pattern = pattern.next(one)
    assert len(pattern.find(range(3 * count))) == 3


@pytest.mark.parametrize(
    ("pattern", "arguments", "message"),
    [
        (step("a", "A"), {}, "step 'a' of a has the kind 'A', which is not a class; pass kind="),
        (step("a", int), {"kind": type}, "no step with a kind that kind= could return"),
        (step("a", "A"), {"kind": 3}, "kind must be the name of a field or a plain function; got 3"),
        (a, {"after": "next"}, "after must be 'end', 'start' or 'all'; got 'next'"),
        (a.optional(), {}, "needs no event"),
    ],
)
def test_mistakes_are_refused_before_records_are_read(
    pattern: Pattern[Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        pattern.find([], **arguments)
