"""The mailbox of a run: each request has its answer, whenever the run ends."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from malflow.errors import MalflowError, QueryError, SnapshotError, StoreError
from malflow.failures import Replay
from malflow.runtime.requests.answers import ExplainRequest, OwnThreads, Request, RescaleRequest, SnapshotRequest
from malflow.runtime.requests.mailbox import Mailbox, Tray
from malflow.runtime.requests.queries import Query, ReplayRequest, StateAnswer

AWAY = StoreError("away")


class Named:
    """Stands for the state that a question is about."""

    name = "count"

    @property
    def node(self) -> Named:
        return self


def query() -> Query:
    kept: Any = Named()
    question: Any = None
    return Query(question, kept, lambda found: found, answer=StateAnswer(OwnThreads()))


def replay() -> ReplayRequest:
    return ReplayRequest(Replay("count", None, False))


KINDS: list[Callable[[], Request[Any]]] = [SnapshotRequest, lambda: RescaleRequest(2), ExplainRequest, query, replay]


def outcome(answer: Future[Any]) -> str:
    """Return what became of a request, without a wait."""
    if answer.cancelled():
        return "cancelled"
    error = answer.exception(0)
    return repr(answer.result(0)) if error is None else f"{type(error).__name__}: {error}"


AT_THE_END = [
    "cancelled",
    "cancelled",
    "None",
    "QueryError: operator 'count' was not asked: the run ended before",
    "QueryError: the dead letters of operator 'count' were not touched: the run ended before",
]


def trays(mailbox: Mailbox) -> list[Tray[Any]]:
    return [mailbox.changes, mailbox.explanations, mailbox.queries, mailbox.replays]


def test_every_kind_at_the_end_of_the_run() -> None:
    mailbox = Mailbox()
    taken = [mailbox.post(kind()) for kind in KINDS]
    for tray in trays(mailbox):
        tray.take_all()
    waiting = [mailbox.post(kind()) for kind in KINDS]
    mailbox.close(AWAY)
    assert [outcome(it) for it in taken] == [outcome(it) for it in waiting] == AT_THE_END
    assert [getattr(it.exception(0), "__cause__", None) for it in waiting[3:]] == [AWAY, AWAY]


def post_late(mailbox: Mailbox, request: Request[Any]) -> str:
    """Post a request to a run that ends; return the error."""
    try:
        mailbox.post(request)
    except MalflowError as error:
        return str(error)
    return ""


def after_the_end(mailbox: Mailbox, request: Request[Any]) -> str:
    mailbox.close(None)
    return post_late(mailbox, request)


def between_the_post_and_its_check(mailbox: Mailbox, request: Request[Any]) -> str:
    mailbox.wake.set = lambda: mailbox.close(None)  # type: ignore[method-assign] # the run ends just here
    return post_late(mailbox, request)


def while_the_run_answers_others(mailbox: Mailbox, request: Request[Any]) -> str:
    said: list[str] = []
    for kind in KINDS:
        mailbox.post(kind()).add_done_callback(lambda _: said.append(post_late(mailbox, request)))
    mailbox.close(None)
    return said[0]


@pytest.mark.parametrize(
    "moment", [after_the_end, between_the_post_and_its_check, while_the_run_answers_others], ids=lambda it: it.__name__
)
def test_request_that_comes_as_the_run_ends(moment: Callable[[Mailbox, Request[Any]], str]) -> None:
    for kind, end in zip(KINDS, AT_THE_END, strict=True):
        mailbox, request = Mailbox(), kind()
        refused = moment(mailbox, request)
        assert outcome(request.answer) == end
        assert ("the run has ended" in refused) != isinstance(request, ExplainRequest)
        assert not any(tray.waiting or tray.taken for tray in trays(mailbox)), "nothing keeps it"


def test_refusals_of_each_kind() -> None:
    assert [(type(kind().refusal), str(kind().refusal)) for kind in KINDS] == [
        (SnapshotError, "the run has ended"),
        (SnapshotError, "the run has ended"),
        (type(None), "None"),
        (QueryError, "the run has ended; read_state() reads its last snapshot"),
        (QueryError, "the run has ended, and its dead letters stay; start it again to replay them"),
    ]


def test_order_of_requests_that_an_attempt_gives_back() -> None:
    mailbox = Mailbox()
    requests: list[Any] = [SnapshotRequest(), SnapshotRequest(), RescaleRequest(2), SnapshotRequest()]
    first, gone, rescale, last = requests
    for request in requests[:3]:
        mailbox.post(request)
    changes = mailbox.changes
    assert changes.take_all()
    assert not mailbox.has_new
    assert changes.snapshots == [first, gone]
    mailbox.post(last)
    gone.answer.cancel()
    mailbox.give_back(AWAY)
    assert changes.waiting == [first, rescale, last]
    assert mailbox.has_new
    changes.take_all()
    assert changes.snapshots == [first]
    changes.drop(changes.snapshots)
    assert changes.is_rescale_next


def test_rescale_that_was_begun_when_an_attempt_fails() -> None:
    mailbox, rescale, later = Mailbox(), RescaleRequest(2), RescaleRequest(3)
    for request in (rescale, later):
        mailbox.post(request)
    mailbox.changes.take_all()
    assert mailbox.changes.begin_rescale() == 2
    mailbox.give_back(AWAY)
    assert outcome(rescale.answer) == "StoreError: away"
    assert mailbox.changes.waiting == [later]


def test_question_that_two_attempts_have_taken() -> None:
    mailbox, asked = Mailbox(), query()
    mailbox.post(asked)
    for attempt in range(2):
        assert mailbox.has_new, attempt
        mailbox.queries.take_all()
        mailbox.give_back(AWAY)
    assert not mailbox.has_new
    assert outcome(asked.answer).endswith("was not asked: the run failed 2 times while it was asked")
