"""The answers of a run to those who ask by its control socket or page."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from malflow.drawing import compact_document, draw
from malflow.engine.state_queries import MOST_KEYS
from malflow.errors import GraphError, MalflowError
from malflow.events import Event, LettersTaken, Run, SnapshotCommitted
from malflow.monitor.asks import Ask
from malflow.monitor.documents import (
    Document,
    RunFacts,
    document,
    error_document,
    event_document,
    history_document,
    letter_facts,
    meant_keys,
    progress_document,
    refusal,
    time_document,
    why_document,
)
from malflow.monitor.recent_past import History
from malflow.monitor.samples import NOT_SHOWN, Samples, TooManySamples
from malflow.operators.failures.guard import KEPT
from malflow.runtime.progress.progress import Progress
from malflow.store.redaction import safe_repr

__all__ = ["Answers", "Events", "read_progress"]

_MOST = 500
"""The most events that are kept of each sort: snapshots, dead letters, and all others."""
_TRIES = 10
"""The most tries to read the progress while counts are added. Each fails only if a count is new in that moment, so a
second one nearly always succeeds."""

_USUAL = 100
"""The most letters or keys in an answer if the request has no limit."""


class Events:
    """The last events of a run as documents. These hold nothing of the events themselves: an error may hold much."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._snapshots: deque[Document] = deque(maxlen=_MOST)
        self._letters: deque[Document] = deque(maxlen=_MOST)
        self._others: deque[Document] = deque(maxlen=_MOST)

    def note(self, event: Event) -> None:
        """Keep an event."""
        kept = {SnapshotCommitted: self._snapshots, LettersTaken: self._letters}.get(type(event), self._others)
        kept.append(event_document(next(self._numbers), datetime.now(UTC), event))

    def after(self, number: int) -> list[Document]:
        """Return the events after one, oldest first."""
        kept = [it for it in (*self._snapshots, *self._letters, *self._others) if it["number"] > number]
        return sorted(kept, key=lambda it: it["number"])

    @property
    def snapshots(self) -> list[Document]:
        """The last snapshots, including failed ones, oldest first."""
        failed = (it for it in [*self._others] if it["event"] == "snapshot_failed")
        return sorted((*self._snapshots, *failed), key=lambda it: it["number"])


def read_progress(run: Run) -> Progress:
    """Return the progress of a run. It may add counts while they are read."""
    for _ in range(_TRIES):
        with suppress(RuntimeError):  # a count was added to a dict meanwhile
            found: Progress = run.progress
            return found
    last: Progress = run.progress
    return last


class Answers:
    """Answers requests about a run, and passes on those to it.

    Args:
        run: the run.
        facts: which run it is.
        history: the samples of its progress.
        events: its last events.
        samples: the last records of its operators.
    """

    def __init__(self, run: Run, facts: RunFacts, history: History, events: Events, samples: Samples) -> None:
        self._run = run
        self._facts = facts
        self._history = history
        self._events = events
        self._samples = samples
        self._by_word: Mapping[str, Callable[[Ask], Document]] = {
            "progress": lambda _: self.progress(),
            "graph": lambda _: self._graph(),
            "drawing": self._drawing,
            "history": lambda ask: history_document(facts, history, ask.given.get("last")),
            "events": self._show_events,
            "snapshots": lambda _: self._document("snapshots", {"snapshots": events.snapshots}),
            "why": self._why,
            "time": self._time,
            "letters": self._show_letters,
            "state": self._state,
            "snapshot": self._snapshot,
            "rescale": self._rescale,
            "stop": self._stop,
            "replay": self._letters,
            "discard": self._letters,
            "sample": self._sample,
        }

    def answer(self, ask: Ask) -> Document:
        """Return the answer to a request; of those that wait for the run, only after its tick."""
        try:
            return self._by_word[ask.do](ask)
        except TimeoutError:
            return refusal("Timeout", f"the tick has not ended within {ask.timeout:g} s; progress shows its number")
        except CancelledError:
            return refusal("RunEnded", f"the run ended before {ask.do} was served")
        except MalflowError as error:
            return document("error", {"error": error_document(error)})

    def progress(self) -> Document:
        """Return the progress of the run."""
        return progress_document(self._facts, read_progress(self._run), self._history.rates)

    def _show_events(self, ask: Ask) -> Document:
        return self._document("events", {"events": self._events.after(ask.given.get("after", 0))})

    @property
    def show_records(self) -> bool:
        """Whether the last records of an operator may be shown. Only a run in one thread can show them."""
        return self._samples.are_shown and self._facts.runtime == "single"

    def _sample(self, ask: Ask) -> Document:
        """Return the last records of an operator. It is sampled while somebody asks at least every ten seconds."""
        operator = ask.given["operator"]
        if not self._samples.are_shown:
            return refusal("NotShown", NOT_SHOWN)
        try:
            found = self._samples.of(operator, ask.given.get("after", 0))
        except TooManySamples as error:
            return refusal("Busy", str(error))
        except GraphError as error:
            return refusal("UnknownOperator", str(error))
        return self._document("samples", {"operator": operator, "samples": found})

    def _why(self, ask: Ask) -> Document:
        operator = ask.given.get("operator")
        try:
            return why_document(self._facts, self._run.why(operator, ask.timeout))
        except GraphError as error:
            return refusal("UnknownOperator", str(error))

    def _time(self, ask: Ask) -> Document:
        return time_document(self._facts, self._run.explain_time(ask.timeout))

    def _graph(self) -> Document:
        program = self._run.program
        if program is None:
            return refusal("NotBuilt", "the dataflow is not built yet")
        drawn: Document = compact_document(program)
        return self._document("graph", {name: it for name, it in drawn.items() if name not in ("malflow", "kind")})

    def _drawing(self, ask: Ask) -> Document:
        program = self._run.program
        if program is None:
            return refusal("NotBuilt", "the dataflow is not built yet")
        options = {name: ask.given[name] for name in ("format", "stages", "width") if name in ask.given}
        return self._document("drawing", {"text": draw(program, **options)})

    def _show_letters(self, ask: Ask) -> Document:
        """List current dead letters, or return one by id with its traceback."""
        counts, wanted = read_progress(self._run).counts, ask.given.get("operator")
        names = [name for name, own in counts.items() if own.get(KEPT)] if wanted is None else [wanted]
        wanted_id = ask.given.get("id")
        limit = ask.given.get("limit", _USUAL) if wanted_id is None else MOST_KEYS
        try:
            answers = [self._run.letters(name, limit) for name in names]
        except GraphError as error:
            return refusal("UnknownOperator", str(error))
        found = [it for answer in answers for it in answer.result(ask.timeout)]
        if wanted_id is not None:
            chosen = [{**letter_facts(it), "trace": it.trace} for it in found if it.id == wanted_id]
            return self._document("letters", {"total": len(chosen), "letters": chosen})
        total = sum(counts.get(name, {}).get(KEPT, 0) for name in names)
        return self._document("letters", {"total": total, "letters": [letter_facts(it) for it in found[:limit]]})

    def _state(self, ask: Ask) -> Document:
        """Return the state of a key after the last tick; without a key, the states of the first keys."""
        operator, key = ask.given["operator"], ask.given.get("key")
        try:
            view = self._run.state(operator)
            if key is None:
                answer = view.items(ask.given.get("limit", _USUAL))
                found = answer.result(ask.timeout)
            else:
                answer = view.get_many(meant_keys(key))
                found = [*answer.result(ask.timeout).items()]
        except GraphError as error:
            return refusal("UnknownOperator", str(error))
        rows = [{"key": safe_repr(key), "value": safe_repr(value)} for key, value in found]
        return self._document("states", {"operator": operator, "tick": answer.tick, "states": rows})

    def _snapshot(self, ask: Ask) -> Document:
        return self._served(ask, self._run.snapshot(), lambda taken: {"snapshot": taken})

    def _rescale(self, ask: Ask) -> Document:
        workers = ask.given["parallelism"]
        return self._served(ask, self._run.rescale(workers), lambda _: {"parallelism": workers})

    def _stop(self, ask: Ask) -> Document:
        self._run.stop()
        return self._document("accepted", {"do": ask.do})

    def _letters(self, ask: Ask) -> Document:
        operator, ids = ask.given["operator"], ask.given.get("ids")
        try:
            answer = self._run.replay(operator, ids) if ask.do == "replay" else self._run.discard(operator, ids)
            outcome = answer.result(ask.timeout)
        except GraphError as error:
            return refusal("UnknownOperator", str(error))
        except TimeoutError:
            return self._document("accepted", {"do": ask.do})
        counts = outcome._asdict()
        return self._document("letters_done", {"operator": operator, "do": ask.do, **counts})

    def _served(self, ask: Ask, answer: Future[Any], content: Callable[[Any], Mapping[str, Any]]) -> Document:
        """Return the result of a request to the run; ``accepted`` if it is not served within the timeout."""
        try:
            done = content(answer.result(ask.timeout))
            return self._document("done", {"do": ask.do, "snapshot": None, "parallelism": None, **done})
        except CancelledError:
            return refusal("RunEnded", f"the run ended before {ask.do} was served")
        except Exception as error:  # noqa: BLE001 - any error of the run
            if not answer.done():
                return self._document("accepted", {"do": ask.do})
            return document("error", {"error": error_document(error)})

    def _document(self, kind: str, content: Mapping[str, Any]) -> Document:
        return document(kind, {"run": self._facts.run, "job": self._facts.job, **content})
