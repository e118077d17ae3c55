"""The planted bugs of policies for failed records."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["BAD_RECORD_BUGS"]

_SURVIVING = "operators/failures/surviving.py"
_LAWS = "tests/bad_records/test_laws.py"
_LETTERS = "operators/failures/dead_letters.py"
_REPLAYS = "engine/dead_letters.py"
_REPLAYED = "tests/conformance/test_replays.py"
_KILLS = "tests/bad_records/test_kills.py"
_KEPT = "tests/bad_records/test_letters.py"
_GUARD = "operators/failures/guard.py"
_RETRIES = "tests/bad_records/test_retries.py"
_PARKING = "tests/bad_records/test_parking.py"
_SOURCES = "tests/bad_records/test_sources.py"
_POLICIES = "tests/bad_records/test_policies.py"

BAD_RECORD_BUGS = [
    Bug(
        "a failed call has changed the state",
        "the function received the state itself",
        _SURVIVING,
        "        if type(state) in ATOMIC_TYPES or _is_frozen(state):\n            return state\n",
        "        if state is not None:\n            return state\n",
        (f"{_LAWS}::test_a_failed_call_leaves_no_trace",),
    ),
    Bug(
        "a failed call has set a timer",
        "only messages are taken back",
        "operators/keyed/timed_op.py",
        "                    timers.drop()\n",
        "                    timers.keep()\n",
        (f"{_LAWS}::test_a_failed_call_leaves_no_trace",),
    ),
    Bug(
        "a failed call has sent messages",
        "they were sent before the failure",
        "operators/stateless.py",
        "                    output.cut(start)\n",
        "                    output.cut(len(output))\n",
        (f"{_LAWS}::test_a_failed_call_leaves_no_trace",),
    ),
    Bug(
        "a StopIteration of the function ends the batch",
        "it is the end of an iterator",
        _SURVIVING,
        "            ended = _raised_by_user(error)\n",
        "            ended = _raised_by_user(error)\n"
        "            if type(ended) is StopIteration:\n                break\n",
        (f"{_LAWS}::test_a_failed_call_leaves_no_trace",),
    ),
    Bug(
        "letters of two records of a tick are one",
        "a tick has one failure",
        _LETTERS,
        '        return f"{prefix}-{self._number}"',
        "        return prefix",
        (f"{_KEPT}::test_no_failure_and_no_record_is_too_strange_for_a_letter",),
    ),
    Bug(
        "a letter is not written",
        "touch is forgotten",
        _LETTERS,
        "(fields._replace(is_parked=parks))\n        self._letters.touch((entry,))\n",
        "(fields._replace(is_parked=parks))\n",
        (f"{_KEPT}::test_letters_are_kept_over_runs_of_any_size_and_policy",),
    ),
    Bug(
        "letters are kept only by operators with a policy",
        "a state belongs to what uses it",
        "engine/stage_operators.py",
        "                self.letters[step.vertex] = letters = "
        "Letters(context, self._places.bound(node.placed_by, node.name))\n"
        "                policy = self._program.policy(node)\n",
        "                policy = self._program.policy(node)\n"
        "                letters = Letters(context, self._places.bound(node.placed_by, node.name))\n"
        "                if policy is not None:\n"
        "                    self.letters[step.vertex] = letters\n",
        (f"{_KEPT}::test_letters_stay_under_the_policy_to_fail",),
    ),
    Bug(
        "the letters of the last tick are not taken",
        "the last tick has only an epoch",
        "engine/stage_operators.py",
        "        batch = Batch(None, [*letters], [it.at for it in letters], [(len(letters), MAX)] if final else ())\n",
        "        letters = [] if final else letters\n"
        "        batch = Batch(None, [*letters], [it.at for it in letters], [(len(letters), MAX)] if final else ())\n",
        (f"{_KEPT}::test_letters_of_the_last_tick_are_taken_too",),
    ),
    Bug(
        "the stream of letters has the epochs of its operators",
        "a stream has the epochs of its input",
        "graph.py",
        "        return bool(vertex.timed_by) and all(map(self.has_epochs, vertex.timed_by))\n",
        "        return bool(vertex.inputs) and all(map(self.has_epochs, vertex.timed_by))\n",
        (f"{_KEPT}::test_a_stream_of_letters_has_operators_and_its_own_time",),
    ),
    Bug(
        "letters have the addresses of objects",
        "a text is a text",
        _LETTERS,
        'return _ADDRESS.sub("0x...", text)',
        "return text",
        (f"{_KEPT}::test_no_failure_and_no_record_is_too_strange_for_a_letter",),
    ),
    Bug(
        "dropped letters still count as bytes",
        "only the number is bounded",
        _LETTERS,
        "        self.size -= fields.size\n",
        "",
        (f"{_KEPT}::test_letters_are_bounded_by_their_bytes",),
    ),
    Bug(
        "a replayed letter stays",
        "a request is served at least once",
        _REPLAYS,
        "        letters.drop(entry)\n        emit(",
        "        emit(",
        (f"{_REPLAYED}::test_a_replay_and_its_effect_are_in_one_snapshot",),
    ),
    Bug(
        "a replayed letter is back after a kill",
        "only new letters are written",
        _LETTERS,
        "            del self._letters[entry]\n            self._letters.touch((entry,))\n",
        "            del self._letters[entry]\n",
        (f"{_KILLS}::test_letters_and_replays_are_exact_after_kills_at_any_moment",),
    ),
    Bug(
        "a replayed record counts as tried once",
        "a letter is a new record",
        _GUARD,
        "        self._before, self._is_replay = [letter.attempts for _, letter in group], True\n",
        "        self._is_replay = True\n",
        (f"{_KEPT}::test_letters_behind_the_epoch_and_texts_stay",),
    ),
    Bug(
        "a replayed record may be at or before the epoch",
        "late records are separated before",
        _REPLAYS,
        "        return reached is not None and not letter.timestamp > reached\n",
        "        return False\n",
        (f"{_KEPT}::test_letters_behind_the_epoch_and_texts_stay",),
    ),
    Bug(
        "failures of long ago count against a budget",
        "a share is of all records",
        "runtime/coordination/budgets.py",
        "            while ticks and now - ticks[0].at >= window:\n",
        "            while False:\n",
        ("tests/bad_records/test_budgets.py::test_failures_before_the_window_do_not_count",),
    ),
    Bug(
        "letters of two runs of a tick are one",
        "a tick is one run of a worker",
        _LETTERS,
        "        if tick.number != self._tick.number:\n            self._number = 0\n",
        "        self._number = 0\n",
        ("tests/spark/test_repeated_tasks.py::test_repeated_tasks_make_each_dead_letter_once",),
    ),
    Bug(
        "an attempt counts for the next record too",
        "attempts are counted per operator",
        _GUARD,
        "            self._tries = 0\n            if keeps:\n",
        "            if keeps:\n",
        (f"{_RETRIES}::test_an_attempt_that_failed_leaves_no_trace",),
    ),
    Bug(
        "a letter does not count the retries of its record",
        "each letter comes from one attempt",
        _GUARD,
        "tries = self._tries + 1 if",
        "tries = 1 if",
        (f"{_RETRIES}::test_an_attempt_that_failed_leaves_no_trace",),
    ),
    Bug(
        "a failed attempt has sent messages",
        "messages are withdrawn once the policy has decided",
        "operators/keyed/stateful.py",
        "                output.cut(start)\n                if not guard.repeats(error):\n"
        "                    self.lose(guard, error, record)\n                continue\n            if state is None:",
        "                if not guard.repeats(error):\n                    output.cut(start)\n"
        "                    self.lose(guard, error, record)\n                continue\n            if state is None:",
        (f"{_RETRIES}::test_an_attempt_that_failed_leaves_no_trace",),
    ),
    Bug(
        "records of a parked key overtake the waiting ones",
        "a letter concerns one record only",
        _GUARD,
        "or self._is_replay or record[0] not in parked:\n",
        "or not self._is_replay or record[0] not in parked:\n",
        (f"{_PARKING}::test_the_records_of_a_key_keep_their_order",),
    ),
    Bug(
        "a parked record that fails again goes to the end of its key",
        "it is a new letter",
        _GUARD,
        "at=replayed if parks else None)",
        "at=None)\n            if replayed is not None and parks:\n                letters.drop(replayed)",
        (f"{_PARKING}::test_the_records_of_a_key_keep_their_order",),
    ),
    Bug(
        "a restart forgets which keys are parked",
        "the letters are restored",
        _LETTERS,
        "        self.parked = Counter(entry[1] for entry, it in entries if it.is_parked)\n",
        "",
        (f"{_PARKING}::test_the_records_of_a_key_keep_their_order",),
    ),
    Bug(
        "a parked letter is replayed before earlier ones of its key",
        "the requested letters are replayed",
        _REPLAYS,
        "        if letter.is_parked and queues[entry[1]][0] != letter.id:\n",
        "        if letter.is_parked and letter.id not in queues[entry[1]]:\n",
        (f"{_PARKING}::test_the_records_of_a_key_keep_their_order",),
    ),
    Bug(
        "a record that can't be read does not count as polled",
        "nothing is emitted for it",
        "operators/hosting/source.py",
        "        self.polled += len(batch)\n",
        "        self.polled = len(batch)\n",
        (f"{_SOURCES}::test_a_record_that_cannot_be_read_counts_as_polled_and_not_as_emitted",),
    ),
    Bug(
        "a file of bad lines is read in one tick",
        "a poll returns when it has a record",
        "connectors/files/source.py",
        "            if values or len(self._rejected) > before:\n",
        "            if values:\n",
        (f"{_SOURCES}::test_a_record_that_cannot_be_read_counts_as_polled_and_not_as_emitted",),
    ),
    Bug(
        "unreadable records are taken again with each poll",
        "a list is passed on",
        "connectors/files/source.py",
        "        rejected, self._rejected = self._rejected, []\n",
        "        rejected = self._rejected\n",
        (f"{_SOURCES}::test_letters_of_sources_are_exactly_once",),
    ),
    Bug(
        "a raw record that is read again does not count as emitted",
        "sources emit when they are polled",
        "operators/hosting/source.py",
        "        self._again += 1\n",
        "",
        (f"{_SOURCES}::test_raw_records_are_read_again_by_the_mended_source",),
    ),
    Bug(
        "an unwritable key of a letter fails the snapshot",
        "only its record is replaced",
        "snapshot/files/sections.py",
        "    return entry if _writes(codec, entry) else (entry[0], None)\n",
        "    return entry\n",
        ("tests/bad_records/test_hostile.py::test_a_key_that_the_codec_cannot_write_becomes_a_text",),
    ),
    Bug(
        "calls of a parked key in the tick's next batch overtake",
        "a batch without failures has no letters",
        "operators/calls/map_async.py",
        "            if guard is not None and (failures or guard.parks):\n",
        "            if guard is not None and failures:\n",
        (f"{_PARKING}::test_calls_of_a_parked_key_in_a_later_batch_of_the_tick_follow",),
    ),
    Bug(
        "a lack of memory is skipped",
        "MemoryError is an Exception",
        "operators/failures/guard.py",
        "FATAL = (MemoryError, MalflowError)",
        "FATAL = (MalflowError,)",
        (f"{_POLICIES}::test_no_policy_decides_about_memory_and_errors_of_malflow",),
    ),
]
