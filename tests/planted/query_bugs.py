"""The planted bugs of live queries: ticks, workers, copies, restarts, and questions that nobody answers."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["QUERY_BUGS"]

_ATTEMPT = "runtime/spark/tasks/stage.py"
_QUESTIONS = "engine/state_queries.py"
_SERVICE = "runtime/coordination/queries.py"
_VIEWS = "runtime/requests/state_views.py"
_MAILBOX = "runtime/requests/mailbox.py"
_BOX = "tests/runtime/test_mailbox.py"
_MODELS = "tests/queries/test_models.py"
_MISTAKES = "tests/queries/test_mistakes.py"
_WINDOWS = "tests/queries/test_windows.py"
_SPARK = "tests/queries/test_simulated_spark.py"
_SIMULATED = f"{_SPARK}::test_answers_are_the_states_after_their_tick_on_spark"
_ANSWERS = f"{_MODELS}::test_answers_are_the_states_after_their_tick"
_NO_NONE = f"{_MISTAKES}::test_a_key_without_a_state_is_no_none"
_ASKS = (
    "        if queries := self._command.queries:\n"
    "            answer_questions(queries, self._program, self._changelog, worker, self._stage, self._command.tick)\n"
)
_WORKS = (
    "        self._times = _times_of(worker) if self._command.explains else {}\n"
    "        if self._stage == 0:\n"
    "            self._confirm(live)\n"
    "            self._poll(live, outgoing)\n"
    "        else:\n"
    "            self._process(worker, arrived, outgoing)\n"
)

QUERY_BUGS = [
    Bug(
        "tasks answer after they have processed the tick",
        "the newest state is the best",
        _ATTEMPT,
        f"{_ASKS}{_WORKS}",
        f"{_WORKS}{_ASKS}",
        (_SIMULATED,),
    ),
    Bug(
        "a restart forgets the questions that a tick carried",
        "they were taken",
        _MAILBOX,
        "self.waiting[:0] = [request for request in again if not request.answer.done()]",
        "self.waiting[:0] = [request for request in again if not request.answer.done() and request is self]",
        (f"{_BOX}::test_question_that_two_attempts_have_taken", _SIMULATED),
    ),
    Bug(
        "a question that ends every attempt is asked for ever",
        "a restart asks again",
        "runtime/requests/queries.py",
        "if tries == _MOST_TRIES:",
        "if False:",
        (f"{_BOX}::test_question_that_two_attempts_have_taken",),
    ),
    Bug(
        "the first worker is asked for every key",
        "one worker is enough for one key",
        _QUESTIONS,
        "workers=frozenset(owners)",
        "workers=frozenset({0})",
        (_ANSWERS,),
    ),
    Bug(
        "more pairs than were wanted",
        "each worker keeps the limit",
        _VIEWS,
        "[*islice(chain.from_iterable(found), limit)]",
        "[*chain.from_iterable(found)]",
        (_ANSWERS,),
    ),
    Bug(
        "answers are the states themselves",
        "a question only reads",
        "runtime/single_thread_host.py",
        "copies(question.name, find(self._program, worker, question))",
        "find(self._program, worker, question)",
        (f"{_MISTAKES}::test_answers_are_copies",),
    ),
    Bug(
        "a key without a state has the state None",
        "there is nothing to tell",
        _VIEWS,
        "        return next(iter(states.values()), default)\n",
        "        return next(iter(states.values()), None)\n",
        (_ANSWERS,),
    ),
    Bug(
        "a key without a state is no error",
        "the default is there for it",
        _VIEWS,
        "if not states and default is ...:",
        "if False:",
        (_NO_NONE,),
    ),
    Bug(
        "of two workers that have a key the last counts",
        "a key is on one worker",
        _VIEWS,
        "            if key in states:\n",
        "            if False:\n",
        (f"{_MISTAKES}::test_a_key_that_several_workers_have_is_not_chosen_among_them",),
    ),
    Bug(
        "the run's own thread may ask, and wait for ever",
        "only result() waits",
        _VIEWS,
        "    requests.own.check_may_wait(",
        "    str.format(",
        (f"{_MISTAKES}::test_a_question_from_the_run_itself_is_refused",),
    ),
    Bug(
        "a question to a run that has ended is queued",
        "the next run answers it",
        _MAILBOX,
        "        if self.is_over:  # not before it was added\n",
        "        if False:\n",
        (f"{_MISTAKES}::test_before_and_after_a_run_nothing_can_be_asked",),
    ),
    Bug(
        "a run looks for requests before it says that it has ended",
        "first the work, then the mark",
        _MAILBOX,
        "        self.is_over = True  # not after the requests were answered\n"
        "        for tray in self._trays.values():\n            tray.end(error)\n",
        "        for tray in self._trays.values():\n            tray.end(error)\n        self.is_over = True\n",
        (f"{_BOX}::test_request_that_comes_as_the_run_ends",),
    ),
    Bug(
        "a request looks whether the run has ended before it is added",
        "nothing is added in vain",
        _MAILBOX,
        "        waiting.append(request)\n        self.wake.set()\n        if self.is_over:",
        "        is_over = self.is_over\n        waiting.append(request)\n        self.wake.set()\n        if is_over:",
        (f"{_BOX}::test_request_that_comes_as_the_run_ends",),
    ),
    Bug(
        "questions are left when the run ends",
        "whoever asks looks at the time",
        _MAILBOX,
        "for request in [*self.taken, *self.waiting]:",
        "for request in self.taken:",
        (f"{_MISTAKES}::test_no_question_is_left_when_a_run_ends",),
    ),
    Bug(
        "a question that can't be answered ends the run",
        "errors surface",
        "runtime/single_thread_host.py",
        "        except MalflowError as error:\n            return error\n",
        "        except ZeroDivisionError as error:\n            return error\n",
        (f"{_WINDOWS}::test_an_answer_that_fails_does_not_end_the_run",),
    ),
    Bug(
        "an answer of any size is sent",
        "states are small",
        "runtime/transport/states.py",
        "if len(data) > MOST_BYTES:",
        "if False:",
        (f"{_MISTAKES}::test_an_answer_that_is_too_large_to_send_is_refused",),
    ),
    Bug(
        "all questions are answered between two ticks, however many",
        "they are quick",
        _SERVICE,
        "while queries.waiting and (not queries.taken or size + queries.waiting[0].question.size <= MOST_KEYS):",
        "while queries.waiting:",
        (f"{_MISTAKES}::test_more_keys_than_a_tick_answers_wait_for_the_next_one",),
    ),
    Bug(
        "live windows that are kept look open",
        "accumulators are enough",
        _QUESTIONS,
        "    reached = dict(worker.states.of(hidden_id(node, REACHED)))\n",
        "    reached: dict[Any, Any] = {}\n",
        (f"{_WINDOWS}::test_windows_kept_for_late_records_are_final",),
    ),
    Bug(
        "what operators keep beside their state is forgotten",
        "the state is the state",
        "engine/worker_states.py",
        "            if it.name == name and it.keeper.state is not None:\n                it.keeper.sync_state()\n",
        "            if it.name == name and it.keeper.state is not None:\n",
        (f"{_WINDOWS}::test_windows_kept_for_late_records_are_final",),
    ),
    Bug(
        "a live window is found at its end",
        "off by one",
        _QUESTIONS,
        "it.start <= at < it.end",
        "it.start <= at <= it.end",
        (f"{_WINDOWS}::test_a_window_includes_its_start_and_not_its_end",),
    ),
]
