"""The planted bugs of functions of batches, of their checks, and of failed rows of columns."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["BATCH_BUGS"]

_HALVES = "operators/failures/halves.py"
_SURVIVING = "operators/failures/surviving.py"
_BATCHES = "operators/batches.py"
_ANSWERS = "columns/answers.py"
_LAWS = "columns/laws.py"
_OBJECTS = "columns/objects.py"
_ROWS = "tests/columns/test_bad_rows.py"
_FUNCTIONS = "tests/columns/test_functions_of_batches.py"
_CHECKS = "tests/columns/test_laws_of_batches.py"
_COLUMNS = "tests/columns/test_to_columns.py"
_TABLES = "tests/columns/test_exactly_once.py"
_LIBRARIES = "tests/columns/test_libraries.py"

BATCH_BUGS = [
    Bug(
        "a good row becomes a letter with its neighbour",
        "two rows that fail together are both taken for failed ones",
        _HALVES,
        "        if stop - start == 1:\n            failed[start] = error\n",
        "        if stop - start <= 2:\n            failed.update(dict.fromkeys(range(start, stop), error))\n",
        (f"{_ROWS}::test_rows_have_the_fates_of_records",),
    ),
    Bug(
        "a letter has another row than the failed one",
        "the rows are read from the front of the batch",
        _SURVIVING,
        "    chosen = batch.take(rows).listed()\n",
        "    chosen = batch.part(0, len(rows)).listed()\n",
        (f"{_ROWS}::test_rows_have_the_fates_of_records",),
    ),
    Bug(
        "halving drops the first row of each second half",
        "the halves do not meet",
        _HALVES,
        "    yield middle, stop\n",
        "    yield min(middle + 1, stop - 1), stop\n",
        (f"{_ROWS}::test_halves_find_each_failure_and_keep_each_answer",),
    ),
    Bug(
        "the answers of halves that went well are lost",
        "only the rows that were tried alone are kept",
        _BATCHES,
        "        answers = sorted([*answers, ",
        "        answers = sorted([*(it for it in answers if it.stop - it.start == 1), ",
        (f"{_ROWS}::test_rows_have_the_fates_of_records",),
    ),
    Bug(
        "a function that fails at neighbours loses rows",
        "no row is at fault, so nothing is told",
        _HALVES,
        "        if len(failed) == before and not forgives(error):\n",
        "        if False:\n",
        (f"{_ROWS}::test_a_function_that_fails_at_neighbours_only",),
    ),
    Bug(
        "a row of a parked key goes on",
        "only failed rows are looked at",
        _SURVIVING,
        "    return sorted({*failed, *parked, *positions_of(batch.keys, keys)})\n",
        "    return sorted({*failed, *parked, *positions_of(batch.keys, ())})\n",
        (f"{_ROWS}::test_rows_have_the_fates_of_records",),
    ),
    Bug(
        "one failed row makes objects of its whole batch",
        "the rows are made before they are chosen",
        _SURVIVING,
        "    chosen = batch.take(rows).listed()\n",
        "    chosen = batch.listed().take(rows).listed()\n",
        (f"{_ROWS}::test_only_failed_rows_become_objects",),
    ),
    Bug(
        "a key by a field makes objects where it has a policy",
        "only the loop over records has a guard",
        "operators/keying.py",
        "        column = column_of(batch, self._field)\n        if column is None or not is_column(column):\n",
        "        column = column_of(batch, self._field)\n        if True:\n",
        (f"{_ROWS}::test_only_failed_rows_become_objects",),
    ),
    Bug(
        "a NaN among keys and timestamps is found by nobody",
        "a null is not the only item that is none",
        "columns/column.py",
        "        found = array.is_null(nan_is_null=pa.types.is_floating(array.type)).to_numpy(zero_copy_only=False)\n",
        "        found = array.is_null().to_numpy(zero_copy_only=False)\n",
        (f"{_ROWS}::test_rows_have_the_fates_of_records",),
    ),
    Bug(
        "a letter that is tried again has the attempts of another",
        "rows that do not fit have left the replay",
        _BATCHES,
        "            self.guard.leave(left)\n",
        "",
        (f"{_ROWS}::test_a_letter_that_does_not_fit_the_columns_any_more",),
    ),
    Bug(
        "letters are replayed out of order",
        "those that go together wait for those that do not",
        "engine/dead_letters.py",
        "            _settle_together(operator, letters, together, emit)  # older ones come first\n",
        "",
        (f"{_ROWS}::test_rows_have_the_fates_of_records",),
    ),
    Bug(
        "a select makes objects of columns",
        "the fields are read from rows",
        "columns/frame.py",
        "        columns = [self.column(field) for field in fields.values()]\n        if self._batch is None or",
        "        columns = [self.column(field) for field in fields.values()]\n        if True or",
        (f"{_FUNCTIONS}::test_no_row_is_made",),
    ),
    Bug(
        "a null flag keeps its row",
        "it is not False in Arrow",
        _ANSWERS,
        "array.fill_null(False)",
        "array.fill_null(True)",
        (f"{_FUNCTIONS}::test_flags",),
    ),
    Bug(
        "an epoch stays at its place where rows before it are dropped",
        "positions are of the whole batch",
        _ANSWERS,
        "[(before[at], epoch) for at, epoch in batch.epochs]",
        "[(min(at, len(kept)), epoch) for at, epoch in batch.epochs]",
        (f"{_FUNCTIONS}::test_epochs_stay_between_their_records",),
    ),
    Bug(
        "an answer with another type than before is cast",
        "Arrow can",
        _ANSWERS,
        "        if not self._is_stated and not has_no_type(column.type):\n            raise BadAnswer(\n",
        "        if False:\n            raise BadAnswer(\n",
        (f"{_FUNCTIONS}::test_another_schema_than_before",),
    ),
    Bug(
        "a column of nulls fixes the type of later answers",
        "the first answer's schema counts",
        _ANSWERS,
        "            if kind != due and not self._is_stated and has_no_type(due):\n",
        "            if False:\n",
        (f"{_FUNCTIONS}::test_a_column_of_nulls_has_the_type_of_other_answers",),
    ),
    Bug(
        "a debug run cuts batches into rows for functions of batches",
        "all operators get records one by one there",
        _BATCHES,
        "        elif edges[0]:\n            yield self.process(concat(edges[0]))\n",
        "        else:\n            yield from super().run(edges)\n",
        (f"{_CHECKS}::test_records_that_came_one_by_one_are_joined_for_checks",),
    ),
    Bug(
        "a function that writes to a shared buffer is not found",
        "its input is compared with itself",
        _BATCHES,
        "        before = copied(given)\n",
        "        before = given\n",
        (f"{_CHECKS}::test_a_function_that_writes_to_its_input",),
    ),
    Bug(
        "a function that answers one buffer again and again is not found",
        "the answer is compared with itself",
        _BATCHES,
        "        kept, chance = copied(columns), ",
        "        kept, chance = columns, ",
        (f"{_CHECKS}::test_a_function_that_reuses_its_answer",),
    ),
    Bug(
        "two floats with other bits are the same to the checks",
        "0.0 == -0.0",
        _LAWS,
        "    return array.view(widths[array.type]) if array.type in widths else array\n",
        "    return array\n",
        (f"{_CHECKS}::test_differences_of_zeros_and_nans",),
    ),
    Bug(
        "a float becomes an integer of the schema",
        "Arrow cuts it off",
        _OBJECTS,
        "    _check_again(items, array, name, is_stated=kind is not None)\n",
        "    if kind is None:\n        _check_again(items, array, name, is_stated=False)\n",
        (f"{_COLUMNS}::test_a_schema_decides",),
    ),
    Bug(
        "integers and floats of one field become floats",
        "Arrow finds a type for both",
        _OBJECTS,
        "    if kind is None:\n        _check_kinds(items, name)\n",
        "",
        (f"{_COLUMNS}::test_objects_that_do_not_fit",),
    ),
    Bug(
        "a test with a table has one row in a frame",
        "as records are",
        "testing/frames.py",
        "        size = sizes.randint(1, _LARGEST)\n",
        "        size = 1\n",
        (f"{_TABLES}::test_frames_have_drawn_sizes",),
    ),
    Bug(
        "letters forget the types of the columns that their rows came from",
        "the types are found in the rows",
        "operators/failures/guard.py",
        "        self._letters.columns = types\n",
        "        del types\n",
        (f"{_ROWS}::test_types_of_letters_after_a_restart",),
    ),
    Bug(
        "letters that are replayed have the types of the last batch",
        "the types of a stream stay the same",
        _BATCHES,
        "        like = self._like if types is None else like_of(types, batch.values[0])\n",
        "        like = self._like\n",
        (f"{_ROWS}::test_types_of_letters_after_a_restart",),
    ),
    Bug(
        "functions get dictionaries where a file has them",
        "the fewer copies, the better",
        _ANSWERS,
        "    columns = _plain_items(columns)\n",
        "",
        (f"{_LIBRARIES}::test_texts_are_plain_whatever_their_encoding",),
    ),
    Bug(
        "another column gets the dictionary of one of its name",
        "a name is the same column",
        _ANSWERS,
        "        if _is_one(answer.column(at), given.column(place)):\n",
        "        if answer.column(at).type == given.column(place).type:\n",
        (f"{_LIBRARIES}::test_texts_that_a_function_replaces",),
    ),
]
