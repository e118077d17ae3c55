"""The planted bugs of ticks on Spark: where tasks run, and the changes that they merge."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["SPARK_BUGS"]

_ANCHORS = "tests/spark/test_anchors.py"
_COMMANDS = "tests/spark/test_commands.py"
_MOVES = "tests/spark/test_state_moves.py"
_MERGED = "tests/spark/test_merged_changes.py"
_TAKEOVERS = "tests/spark/test_takeovers.py"
_CHANGES = "runtime/spark/tasks/stage_output.py"
_INDEX = "runtime/spark/changelog_index.py"

SPARK_BUGS = [
    Bug(
        "pieces of states are taken as they arrive",
        "Spark fetches them in any order",
        "runtime/spark/state_tasks.py",
        "sorted(arrived.get(name, ()), key=lambda part: part[:2])",
        "arrived.get(name, [])",
        (f"{_MOVES}::test_keys_from_several_workers_keep_their_order",),
    ),
    Bug(
        "the next snapshot lacks keys that moved at the start",
        "with as many workers as before, all seems unchanged",
        "runtime/spark/host.py",
        "if any(base.moved for base in bases):",
        "if False:",
        (f"{_MOVES}::test_keys_that_move_at_the_start_are_in_the_next_snapshot",),
    ),
    Bug(
        "keys that got lost on the way are not missed",
        "the files are checked already",
        "runtime/spark/state_moves.py",
        "        move.check = stored.check\n",
        "",
        (f"{_MOVES}::test_a_snapshot_that_lacks_keys_is_found_before_the_first_tick",),
    ),
    Bug(
        "states pass through the driver",
        "no state counts as one with keys",
        "runtime/spark/state_moves.py",
        "self.stages = stages_of_keys(program)",
        "self.stages: dict[str, int] = {}",
        (f"{_MOVES}::test_only_states_without_keys_are_told_to_the_driver",),
    ),
    Bug(
        "merged changes lack the first of them",
        "the tick after which they are merged counts",
        _CHANGES,
        "added_up(entry.deltas for entry in entries)",
        "added_up(entry.deltas for entry in entries[1:])",
        (f"{_MERGED}::test_a_merged_change_can_follow_any_that_it_replaces", _TAKEOVERS),
    ),
    Bug(
        "merged changes forget parts that have ended",
        "only states were thought of",
        _CHANGES,
        "            finished.setdefault(name, []).extend(parts)\n",
        "            finished[name] = [*parts]\n",
        (f"{_MERGED}::test_a_merged_change_can_follow_any_that_it_replaces",),
    ),
    Bug(
        "changes that were merged twice are not known",
        "a merged change is taken for one change",
        _CHANGES,
        "(*entry.merged, entry.tick)",
        "(entry.tick,)",
        (f"{_MERGED}::test_a_merged_change_can_follow_any_that_it_replaces",),
    ),
    Bug(
        "one change more is dropped than was merged",
        "a bound that is off by one",
        _INDEX,
        "merged is not None and at > merged",
        "merged is not None and at >= merged",
        (_MERGED, _TAKEOVERS),
    ),
    Bug(
        "changes are dropped while a snapshot reads them",
        "only later readers were thought of",
        _INDEX,
        "{at for at in chain.replaced if at not in reading}",
        "{*chain.replaced}",
        (_TAKEOVERS,),
    ),
    Bug(
        "all changes are merged each time",
        "the larger ones too",
        _INDEX,
        "count >= _LONGEST // 2 and of_entry > size",
        "False",
        (f"{_MERGED}::test_a_process_reads_few_changes_and_a_byte_is_merged_few_times",),
    ),
    Bug(
        "a new executor gets its share at once",
        "all move in one tick, and read their state",
        "runtime/spark/anchors.py",
        "range(max(1, parallelism // _MOVED) if places else 0)",
        "range(parallelism)",
        (f"{_ANCHORS}::test_workers_of_living_executors_stay",),
    ),
    Bug(
        "workers of a lost executor go to one other",
        "the first one that lives",
        "runtime/spark/anchors.py",
        "least = min(alive, key=held.__getitem__)\n            held",
        "least = alive[0]\n            held",
        (f"{_ANCHORS}::test_workers_of_living_executors_stay", f"{_ANCHORS}::test_places_become_even_and_then_stay"),
    ),
    Bug(
        "discarded files stay in a local folder",
        "the folder is removed at the end",
        "store/local.py",
        "for name in names:\n                    with suppress(OSError):\n                        os.unlink",
        "for name in names[:0]:\n                    with suppress(OSError):\n                        os.unlink",
        ("tests/spark/test_changelog.py::test_discarded_entries_and_pieces_are_gone_at_once_from_a_local_folder",),
    ),
    Bug(
        "workers stay on a decommissioned executor",
        "it is registered until it ends",
        "runtime/spark/anchors.py",
        "if it not in leaving)",
        "if it)",
        (f"{_ANCHORS}::test_a_decommissioned_executor_loses_its_workers_at_once",),
    ),
    Bug(
        "a worker that ran once elsewhere is dropped",
        "once is taken for twice",
        "runtime/spark/tasks/worker_places.py",
        "_TWICE - 1",
        "0",
        (f"{_ANCHORS}::test_a_worker_counts_as_moved_once_it_ran_twice_elsewhere",),
    ),
    Bug(
        "a large row overtakes small ones",
        "it is sent at once",
        "runtime/spark/tasks/records.py",
        "        if target in waiting and sizes[target] + size > _FRAME:\n",
        "        if size > _FRAME:\n            yield target, _frame([row])\n            continue\n"
        "        if target in waiting and sizes[target] + size > _FRAME:\n",
        (f"{_COMMANDS}::test_small_rows_for_a_worker_share_a_frame",),
    ),
    Bug(
        "merged increments lack one",
        "the last file is not read",
        "snapshot/files/sections.py",
        "sections_of(writer.read, files, compression)",
        "sections_of(writer.read, files[:-1], compression)",
        (f"{_TAKEOVERS}::test_increments_are_merged_by_tasks",),
    ),
]
