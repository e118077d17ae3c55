"""The planted bugs of tables: changes, expiry of rows, and which row a record is joined with."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["TABLE_BUGS"]

_TABLE = "operators/tables/table.py"
_DERIVED = "operators/tables/derived.py"
_JOINS = "operators/tables/joins.py"
_VERSIONS = "operators/joins/asof_join.py"
_MODELS = "tests/tables/test_models.py"
_MISTAKES = "tests/tables/test_mistakes.py"
_CHANGED = "tests/tables/test_changed_tables.py"
_EQUAL = f"{_MODELS}::test_rows_that_are_equal_but_not_the_same_are_not_sent"

TABLE_BUGS = [
    Bug(
        "rows of a batch are compared by identity",
        "an object that is equal is the same",
        _TABLE,
        "sames = list(map(eq, olds, rows))",
        "sames = [old is row for old, row in zip(olds, rows, strict=True)]",
        (_EQUAL,),
    ),
    Bug(
        "rows are compared by identity one by one",
        "an object that is equal is the same",
        _TABLE,
        "            if old == row:\n                continue\n",
        "            if old is row:\n                continue\n",
        (_EQUAL,),
    ),
    Bug(
        "rows beside deletions are compared by identity",
        "an object that is equal is the same",
        _TABLE,
        "                if old == row:\n                    fresh.append(False)\n",
        "                if old is row:\n                    fresh.append(False)\n",
        (_EQUAL,),
    ),
    Bug(
        "a deletion in a batch leaves its row",
        "None is a row like any other",
        _TABLE,
        "                if row is None:\n                    del states[key]\n                else:\n",
        "                if row is not None:\n",
        (f"{_MODELS}::test_the_changes_of_a_table_fold_to_its_rows",),
    ),
    Bug(
        "the row before a change is not the one that was sent",
        "of two equal rows either is right",
        _TABLE,
        "kept[key] = row if is_fresh else before",
        "kept[key] = row",
        (_EQUAL,),
    ),
    Bug(
        "a changed row is found only when its key gets another",
        "each key has a next change",
        _TABLE,
        "for key, row, given in self._sent:",
        "for key, row, given in ():",
        (f"{_MISTAKES}::test_a_row_that_is_changed_after_it_was_given_is_found_in_debug",),
    ),
    Bug(
        "changes that leave their row as it was are sent with others",
        "one flag for a batch",
        "records/changes.py",
        "return changed if all(mask) else changed.select(mask)",
        "return changed if any(mask) else changed.select(mask)",
        (_EQUAL,),
    ),
    Bug(
        "the rows before changes are taken for those after them",
        "two columns of one kind",
        "records/changes.py",
        "changes.column(_AFTER) if",
        "changes.column(_BEFORE) if",
        ("tests/records/test_rows.py",),
    ),
    Bug(
        "rows expire at the end of the input",
        "the last epoch is one",
        _TABLE,
        "if self._ttl is not None and epoch is not MAX:",
        "if self._ttl is not None:",
        (f"{_MODELS}::test_nothing_expires_at_the_end_of_the_input",),
    ),
    Bug(
        "a record that leaves its row as it was does not keep it",
        "what changes nothing does nothing",
        _TABLE,
        "if ttl is not None and row is not None:\n",
        "if ttl is not None and row is not None and old != row:\n",
        (f"{_MODELS}::test_a_record_that_leaves_its_row_as_it_was_keeps_it_from_expiring",),
    ),
    Bug(
        "rows from before there was a ttl never expire",
        "each row has a timer",
        _TABLE,
        "self._has_untimed = len(self._expiries.pending.at) < len(self.state)",
        "self._has_untimed = False",
        (f"{_CHANGED}::test_an_added_ttl_counts_from_the_first_epoch_for_present_rows",),
    ),
    Bug(
        "values that were not sent become rows",
        "a row is whole",
        _TABLE,
        "unsent is None or unsent.are_whole(rows, kinds)",
        "True",
        (f"{_MISTAKES}::test_values_that_were_not_sent_are_taken_from_the_row_before",),
    ),
    Bug(
        "a row that a filter lets go stays",
        "what does not pass is not there",
        _DERIVED,
        "mask.append(True if was or now else False)",
        "mask.append(True if now else False)",
        (f"{_MODELS}::test_derived_tables_are_those_of_derived_rows",),
    ),
    Bug(
        "a row that moves between groups stays in both",
        "an update is an update",
        _DERIVED,
        "if before is None or after is None or was == now:",
        "if True:",
        (f"{_MODELS}::test_groups_are_counted_and_moves_are_a_deletion_and_an_insertion",),
    ),
    Bug(
        "records of a tick come before its rows",
        "one edge after the other",
        _JOINS,
        "        for batch in edges[_RIGHT]:\n            self._learn(batch)\n"
        "        for batch in edges[_LEFT]:\n            yield (self._joined(batch),)\n",
        "        for batch in edges[_LEFT]:\n            yield (self._joined(batch),)\n"
        "        for batch in edges[_RIGHT]:\n            self._learn(batch)\n",
        (f"{_MODELS}::test_rows_of_a_tick_count_before_its_records",),
    ),
    Bug(
        "a joined table does not keep the rows of its sides",
        "a change has both rows",
        _JOINS,
        "                if row is not None:\n                    states[slot] = row\n",
        "                if row is not None and other is None:\n                    states[slot] = row\n",
        (f"{_MODELS}::test_joined_tables_fold_to_the_join_of_the_tables",),
    ),
    Bug(
        "a record is joined in time with the changes of a table",
        "a table is its changes",
        "streams/operators/tables.py",
        "rows = table._versions_for(name) if",
        "rows = table.rows() if",
        (f"{_MODELS}::test_a_version_out_of_order_that_the_table_would_not_send_is_found",),
    ),
    Bug(
        "deleted rows are kept for ever",
        "None is a version like any other",
        _VERSIONS,
        "return first + 1 if times[first] <= epoch and rows[first] is None else first",
        "return first",
        (f"{_MODELS}::test_only_rows_that_may_be_found_are_kept",),
        seconds=30,
    ),
    Bug(
        "a deletion is no version",
        "a row that is gone has no time",
        _VERSIONS,
        "            row = rows[at] if at >= 0 else None\n",
        "            row = next((it for it in rows[at::-1] if it is not None), None) if at >= 0 else None\n",
        (f"{_MODELS}::test_a_record_finds_the_row_of_its_time",),
    ),
    Bug(
        "a table without epochs holds back the records that are joined with it",
        "all inputs have the time",
        "nodes.py",
        "inputs = self.inputs[: self.node.times] if isinstance(self.node, StatefulNode) else self.inputs",
        "inputs = self.inputs",
        (f"{_MISTAKES}::test_a_table_needs_no_epochs_by_arrival",),
    ),
    Bug(
        "consumers that were there are warned of",
        "a restart begins again",
        "engine/states/loading.py",
        "elif own[0].name not in known:",
        "else:",
        (f"{_CHANGED}::test_consumers_that_were_there_are_not_warned_of",),
    ),
    Bug(
        "a row that moves to another key stays at the old one",
        "an update is an update",
        "connectors/tables/keyed_rows.py",
        "            yield KeyedRow(before, None)\n",
        "            pass\n",
        (f"{_MISTAKES}::test_rows_of_changes_are_keyed_and_moved",),
    ),
]
