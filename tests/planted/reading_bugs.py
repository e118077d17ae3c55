"""The planted bugs of reading stored state: states, keys, points in time, differences, copies and windows."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["READING_BUGS"]

_STATES = "snapshot/placed_states.py"
_CANDIDATES = "snapshot/protocol/manifest_log.py"
_ROLLUP = "operators/windows/rollup.py"
_MODELS = "tests/reading/test_models.py"
_MISTAKES = "tests/reading/test_mistakes.py"
_TIMES = "tests/snapshot/test_points_in_time.py"
_COPIES = "tests/reading/test_copies.py"
_WINDOWS = "tests/reading/test_windows.py"
_TABLES = "tests/reading/test_tables.py"
_READ = f"{_MODELS}::test_states_are_read_as_they_were_at_each_snapshot"
_DIFFERENCES = f"{_MODELS}::test_differences_make_one_snapshot_of_the_other"

READING_BUGS = [
    Bug(
        "a key is searched from the oldest file",
        "the first that knows it is right",
        _STATES,
        "for file in reversed(range(self._stored.files)):",
        "for file in range(self._stored.files):",
        (_READ,),
    ),
    Bug(
        "a key that was deleted comes back to life",
        "a deletion has no state",
        _STATES,
        "                elif key in states:\n",
        '                elif section.what != "deleted" and key in states:\n',
        (_READ,),
    ),
    Bug(
        "states from before they were written again are found",
        "a section without content says nothing",
        _STATES,
        '                if section.what == "whole":\n',
        "                if False:\n",
        (_READ,),
    ),
    Bug(
        "the pieces of a section are put together backwards",
        "they come one after the other",
        _STATES,
        "pieces.insert(0, found)",
        "pieces.append(found)",
        (_READ,),
    ),
    Bug(
        "each worker has the states of all",
        "a file is of one worker",
        _STATES,
        "for found in self._sections(at) if found.section.worker == worker)",
        "for found in self._sections(at))",
        (_READ,),
    ),
    Bug(
        "a key is searched where malflow would have placed it",
        "there is one partitioner",
        _STATES,
        "select, workers = _OWNERS.get(self.entry.placement),",
        "select, workers = rendezvous_select,",
        (f"{_MISTAKES}::test_a_key_is_found_whatever_placed_it",),
    ),
    Bug(
        "of two workers that have a key the first counts",
        "a key is on one worker",
        _STATES,
        "if found and self.entry.placement is not None:",
        "if found:",
        (f"{_MISTAKES}::test_a_key_that_several_workers_have_is_not_chosen_among_them",),
    ),
    Bug(
        "keys are not counted",
        "what is verified is whole",
        _STATES,
        "if len(self._counts[self.entry.name]) == len(self.workers):",
        "if False:",
        (f"{_MISTAKES}::test_states_that_do_not_add_up_are_an_error",),
    ),
    Bug(
        "a snapshot that was deleted is taken for a damaged one",
        "a file that is missing is missing",
        _STATES,
        "if manifest_log.boundary() <= manifest.seq:",
        "if True:",
        (f"{_MISTAKES}::test_a_snapshot_deleted_while_it_is_read_is_named",),
    ),
    Bug(
        "reading creates the job file again",
        "opening a job is harmless",
        "snapshot/reading.py",
        "    manifest_log = backend.manifest_log()\n",
        "    manifest_log = backend._opened()\n",
        (f"{_MISTAKES}::test_nothing_is_claimed_locked_or_written_by_reading",),
    ),
    Bug(
        "the states of all workers are read before the first",
        "a list is simpler",
        "snapshot/reading.py",
        "    for worker in kept.workers:\n        yield from kept.states(worker).items()\n",
        "    for states in [kept.states(worker) for worker in kept.workers]:\n        yield from states.items()\n",
        (f"{_MISTAKES}::test_the_states_of_one_worker_at_a_time_are_in_memory",),
    ),
    Bug(
        "a snapshot taken at the very time is too new",
        "off by one",
        _CANDIDATES,
        "        if time <= at:\n",
        "        if time < at:\n",
        (f"{_TIMES}::test_the_newest_snapshot_at_or_before_a_time_is_read",),
    ),
    Bug(
        "a damaged snapshot that may be the wanted one is skipped",
        "an older one is better than none",
        _CANDIDATES,
        "return numbers[:first][::-1]",
        "return numbers[: index + 1][::-1]",
        (f"{_TIMES}::test_a_damaged_snapshot_that_may_be_the_wanted_one_is_not_skipped",),
    ),
    Bug(
        "the snapshot that was the latest when the span began is deleted",
        "it is older than the span",
        "snapshot/protocol/retention.py",
        "<= since:\n                return seq\n",
        "<= since:\n                return seq + 1\n",
        (f"{_TIMES}::test_every_time_that_is_retained_can_be_read",),
    ),
    Bug(
        "workers are compared one by one after a rescale",
        "a key stays with its worker",
        "snapshot/history.py",
        "return _aligned(old, new, backend.codec) if is_aligned else _crossed(old, new, backend.codec)",
        "return _aligned(old, new, backend.codec)",
        (_DIFFERENCES,),
    ),
    Bug(
        "keys that are gone are no difference",
        "only what is there has a state",
        "snapshot/history.py",
        "        yield from _changed(before, new.states(worker), codec)\n        yield from _gone(before)\n",
        "        yield from _changed(before, new.states(worker), codec)\n",
        (_DIFFERENCES,),
    ),
    Bug(
        "a copy names the files of the original",
        "an entry describes a file",
        "snapshot/rewinding.py",
        "files.append(replace(entry, name=writer.write(data)))",
        "files.append((writer.write(data), entry)[1])",
        (_COPIES,),
    ),
    Bug(
        "a copy takes over a job that has snapshots",
        "the newest one counts",
        "snapshot/backend.py",
        "if any(manifest_log.digest(seq) is None or manifest_log.manifest(seq).snapshot for seq in numbers):",
        "if False:",
        (f"{_COPIES}::test_a_job_with_snapshots_is_not_copied_to_and_its_run_continues",),
    ),
    Bug(
        "an open day has only its closed hours",
        "units are merged when they close",
        _ROLLUP,
        "            for number in sorted(finer):\n",
        "            for number in ():\n",
        (f"{_WINDOWS}::test_a_rollup_has_all_records_so_far_in_each_unit",),
    ),
    Bug(
        "a closed day is merged into its month a second time",
        "a month has its days",
        _ROLLUP,
        "            below, finer = level, unfinished\n",
        "            below, finer = level, {it: self.state.panes[level.slot(it)] for it in level.kept} | unfinished\n",
        (f"{_WINDOWS}::test_a_rollup_has_all_records_so_far_in_each_unit",),
    ),
    Bug(
        "windows that are kept look open",
        "what is in the state is open",
        "operators/windows/time_windows.py",
        "is_over = self.reached.epoch is not None and last <= self.reached.epoch",
        "is_over = False",
        (f"{_WINDOWS}::test_windows_kept_for_late_records_are_final",),
    ),
    Bug(
        "overlapping windows that are closed are read with the panes that are left",
        "their panes are there",
        "operators/windows/sliding.py",
        "            if epoch is None or last > epoch:\n                keys",
        "            if True:\n                keys",
        (f"{_WINDOWS}::test_open_time_windows_have_the_records_so_far",),
    ),
    Bug(
        "the last rows of a table are lost",
        "a batch is full when it is sent",
        "reading/tables.py",
        "    if keys:\n        yield keys, states\n",
        "    if len(keys) >= wanted:\n        yield keys, states\n",
        (f"{_TABLES}::test_rows_have_the_order_of_read_state_over_batches_and_workers",),
    ),
    Bug(
        "an export that failed leaves a file",
        "closing it is enough",
        "reading/tables.py",
        "        file.discard()\n        raise\n",
        "        place.publish(file.seal())\n        raise\n",
        (f"{_TABLES}::test_an_export_that_fails_leaves_no_file_and_can_be_repeated",),
    ),
]
