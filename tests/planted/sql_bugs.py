"""The planted bugs of SQL: truth with NULL and NaN, numbers, times, and the source of expressions."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["SQL_BUGS"]

_PYTHON = "sql/python.py"
_NUMBERS = "sql/functions/numbers.py"
_TIMES = "sql/functions/times.py"
_PATTERNS = "sql/functions/patterns.py"
_DOORS = "sql/build/doors.py"
_CHAINS = "sql/build/chains.py"
_FUSED = "tests/sql/test_fused.py::"
_ORACLE = "tests/oracles/test_sql.py::test_an_answer_is_that_of_flink_or_differs_on_purpose"
_TIME = "tests/oracles/test_sql_time.py::test_an_answer_is_that_of_flink"
_OF_TIME = "tests/sql/test_time.py"
_DUCKDB = "tests/sql/test_against_duckdb.py::test_expressions_are_those_of_duckdb"
_SHORT = "        if sum(1 for _ in islice(typed.all_within(node), _SHORT + 1)) <= _SHORT:\n"

SQL_BUGS = [
    Bug(
        "AND and OR are Python's, of values",
        "None is false, so None and False would be false anyway",
        _PYTHON,
        _SHORT,
        "        if isinstance(node, typed.Connected):\n"
        "            return f\"({f' {node.op.lower()} '.join(map(self.value, node.operands))})\"\n"
        f"{_SHORT}",
        (_ORACLE, _DUCKDB),
    ),
    Bug(
        "NOT IN of a list with NULL holds for values that are not in it",
        "the value is not among the others",
        _PYTHON,
        "        if not found and node.has_null:",
        "        if not found and node.has_null and not node.values:",
        (_ORACLE,),
    ),
    Bug(
        "the opposite of < is >= for NaN too",
        "the opposite sign is shorter",
        _PYTHON,
        "        if {node.left.type.kind, node.right.type.kind} & _FLOATS:",
        "        if not node.op:",
        (_ORACLE,),
    ),
    Bug(
        "a long condition forgets NULL where another part is true or false",
        "unknown is unknown",
        _PYTHON,
        'return f"({decides} if {decided} else None if {unknown} else {not decides})"',
        'return f"({decides} if {decided} else {not decides} if {unknown} else {not decides})"',
        (_DUCKDB,),
    ),
    Bug(
        "DECIMALs are rounded half to even",
        "so does Python",
        _NUMBERS,
        "DECIMALS = Context(prec=80, rounding=ROUND_HALF_UP)",
        'DECIMALS = Context(prec=80, rounding="ROUND_HALF_EVEN")',
        (_ORACLE,),
    ),
    Bug(
        "whole numbers are divided to the floor",
        "so does Python",
        _NUMBERS,
        "    return quotient if (left < 0) is (right < 0) else -quotient",
        "    return quotient if (left < 0) is (right < 0) else left // right",
        (_ORACLE,),
    ),
    Bug(
        "the remainder has the sign of the right number",
        "so does Python",
        _NUMBERS,
        "        return -rest if left < 0 else rest",
        "        return left % right",
        (_ORACLE, _DUCKDB),
    ),
    Bug(
        "months between instants count the months of the calendar",
        "the day of the month does not matter",
        _TIMES,
        "    return months - (add_months(start, months, digits) > end)",
        "    return months",
        (
            _ORACLE,
            "tests/sql/test_functions.py::test_months_between_instants_are_those_that_fit",
        ),
    ),
    Bug(
        "the end of a LIKE overlaps what stands before it",
        "the text ends with it",
        _PATTERNS,
        "(?=.{{{len(rest[-1])}}}).*+",
        ".*+",
        ("tests/sql/test_patterns.py::test_ends_of_a_text_may_not_overlap_in_it",),
    ),
    Bug(
        "a function of Python is called with NULL",
        "it may look at None itself",
        "sql/build/python_functions.py",
        "            if it is None and not kind.nullable:",
        "            if it is None and not values:",
        (
            "tests/sql/test_python.py::test_a_table_function_adds_its_rows",
            "tests/sql/test_tables.py::test_a_function_of_python_gets_values_and_is_not_called_with_null",
        ),
    ),
    Bug(
        "an aggregator of Python adds rows with NULL in one of two arguments",
        "the other one has a value",
        "sql/build/python_aggregates.py",
        "        if None in values:",
        "        if values[0] is None:",
        ("tests/sql/test_python.py::test_an_aggregator_skips_null",),
    ),
    Bug(
        "an argument of a function is cast to another family",
        "a cast exists",
        "sql/build/python_aggregates.py",
        "        if found is None and _holds(wanted_type, it.type):",
        "        if found is None:",
        ("tests/sql/test_python.py::test_calls_that_do_not_fit_are_refused",),
    ),
    Bug(
        "a comment that is not closed is read as signs",
        "the next comment may be closed",
        "sql/text.py",
        r"|\*/|/(?!\*)|",
        r"|\*/|/|",
        ("tests/sql/test_any_text.py::test_open_comments_and_quotes_are_named",),
    ),
    Bug(
        "QUALIFY is skipped where no column of SELECT has the number",
        "the number is a column of SELECT",
        "sql/bind/queries.py",
        "        return self._qualified(query, query.qualify) if query.qualify else self._selected(query)",
        "        return self._qualified(query, query.qualify) if query.qualify and query.items[-1].alias else "
        "self._selected(query)",
        ("tests/sql/test_slt.py::test_a_file_gives_its_results",),
    ),
    Bug(
        "the times of two rows are not compared where windows are joined",
        "rows of one window are near enough",
        "sql/bind/joins.py",
        "            self.rest += self.times",
        "            self.rest += self.times[1:]",
        (_TIME,),
    ),
    Bug(
        "the end of a window is the time of its results",
        "they come when the window ends",
        "sql/bind/joins.py",
        "        return 1 if fields[node.index].window == _END else None",
        "        return 0 if fields[node.index].window == _END else None",
        ("tests/sql/test_tables.py::test_rows_are_joined_with_the_window_that_ends_at_their_time",),
    ),
    Bug(
        "a column of wider numbers needs no check",
        "all of them are integers",
        "sql/build/columns.py",
        "bits is not None and int(bits[1]) <= INTEGERS[kind.kind]",
        "bits is not None",
        (f"{_FUSED}test_columns_of_arrow_become_the_same_rows_as_dicts",),
    ),
    Bug(
        "columns of instants with a zone are taken as ones without",
        "the unit is the same",
        "sql/build/columns.py",
        ' or (unit[2] is None) is (kind.kind == "TIMESTAMP_LTZ")',
        "",
        (f"{_FUSED}test_columns_of_arrow_become_the_same_rows_as_dicts",),
    ),
    Bug(
        "the columns of a tuple are taken from a value of any class",
        "all values of a stream are of one class",
        _DOORS,
        "[{taken} if type(v) is kind else read(v, names)]",
        "[{taken}]",
        (f"{_FUSED}test_a_chain_with_its_door_and_exit_is_the_same_as_single_steps",),
    ),
    Bug(
        "a whole number at the door may have one bit more",
        "the sign has a bit of its own",
        _DOORS,
        "{variable}.bit_length() < {INTEGERS",
        "{variable}.bit_length() <= {INTEGERS",
        (f"{_FUSED}test_a_value_that_is_no_row_fails_as_in_a_step_of_its_own",),
    ),
    Bug(
        "what is computed leaves without a look at its size",
        "the columns were checked at the door",
        _CHAINS,
        'it.type.kind if is_checked and isinstance(it, Column) else ""',
        "it.type.kind",
        (f"{_FUSED}test_a_number_that_is_too_large_does_not_leave",),
    ),
    Bug(
        "a row that fails in a chain with a door is explained as the value before it",
        "the columns of the chain fail, not the door",
        _CHAINS,
        '"row_of": given.row',
        '"row_of": list',
        (f"{_FUSED}test_a_part_that_fails_is_named_with_its_place",),
    ),
    Bug(
        "a watermark is one unit early, and so closes windows",
        "rows at the bound are out of order",
        "sql/watermarks.py",
        "out_of_orderness=self.bound, **self.options",
        "out_of_orderness=(self.bound or 1) - 1, **self.options",
        (f"{_OF_TIME}::test_a_row_at_the_watermark_is_late_and_one_after_it_is_not",),
    ),
    Bug(
        "a late row is dropped while its window is open",
        "it is late",
        "sql/build/streams.py",
        "        if source.late is None:\n            return windows.aggregate(",
        "        if windows:\n            return windows.aggregate(",
        (f"{_OF_TIME}::test_late_rows_are_in_their_table_and_in_windows_that_are_open", _TIME),
    ),
    Bug(
        "a late row of one table is late in a union too",
        "it was called late",
        "sql/build/streams.py",
        "    return Rows(*every.generate_epochs(name, _no_epoch, per_part=False, layout=layout))",
        "    return Rows(first.union(*others[: len(parts) - 1]), late[0].union(*late[1:]))",
        (_TIME,),
    ),
    Bug(
        "a time in other units is a time attribute still",
        "it is the same instant",
        "sql/bind/scope.py",
        "        return self.is_time and (self.type.kind, self.type.size) == (kind.kind, kind.size)",
        "        return self.is_time and kind.kind != ''",
        (f"{_OF_TIME}::test_a_column_that_is_not_the_time_of_its_rows_is_no_time_attribute",),
    ),
    Bug(
        "the first rows of a window have their own time as time attribute",
        "they are the same rows",
        "sql/bind/queries.py",
        "        ended = at_end(relation.fields)",
        "        ended = relation.fields",
        (f"{_OF_TIME}::test_a_column_that_is_not_the_time_of_its_rows_is_no_time_attribute",),
    ),
    Bug(
        "results of windows that end together are joined",
        "they have the same time",
        "sql/bind/joins.py",
        'self.spec.kind == "TUMBLE" and self.spec.size > 1:',
        'self.spec.kind == "TUMBLE":',
        (f"{_OF_TIME}::test_results_of_windows_that_only_end_together_are_not_joined",),
    ),
    Bug(
        "rows of a hopping window are joined in each window that overlaps it",
        "their times are in it",
        "sql/build/streams.py",
        "        if _overlap(relation.spec):\n            groups = self._owned(groups, name)\n",
        "",
        (_TIME,),
    ),
    Bug(
        "conditions on the number of a row see the number before there was one",
        "a column is a column",
        "sql/bind/queries.py",
        "            return columns[node.index] if isinstance(node, Column) else None\n\n        where = together",
        "            return None\n\n        where = together",
        (_TIME,),
    ),
    Bug(
        "ts < CURRENT_WATERMARK(ts) has all late rows",
        "late rows are before the watermark",
        "sql/bind/lateness.py",
        "_LATE: tuple[Row, ...] = ((0, 1), (1, 1))",
        "_LATE: tuple[Row, ...] = ((0, 1),)",
        (f"{_OF_TIME}::test_late_rows_that_are_not_there_are_refused",),
    ),
    Bug(
        "rows without the time of the others are inserted after a view has read it",
        "the table knows that it has no time",
        "sql/tables.py",
        "        if lost and self.is_named:",
        "        if lost and self._is_read:",
        (f"{_OF_TIME}::test_rows_without_the_time_that_a_view_reads_are_refused",),
    ),
    Bug(
        "the name of a window moves when a WHERE is added",
        "a query with a condition is another one",
        "sql/bind/queries.py",
        'self._names.give("group" if at_end else "window")',
        'self._names.give("group" if at_end else "window" if where is None else "filtered")',
        ("tests/sql/test_names.py::test_an_edit_elsewhere_moves_no_name",),
    ),
    Bug(
        "a column of a row in a state is read by its place",
        "rows have their columns in the order of the query",
        "states/kinds.py",
        "return [it() if callable(it) else parts[it] for it in self.places[number]]",
        "return [it() if callable(it) else parts[at] for at, it in enumerate(self.places[number])]",
        (
            "tests/sql/test_edits.py::test_rows_in_a_state_find_their_columns_by_name",
            "tests/sql/test_edits.py::test_edits_that_are_kept_go_on_as_one_run",
        ),
    ),
    Bug(
        "the definition of a window has no size",
        "the partition of time is compared anyway",
        "sql/build/layouts.py",
        'return f"{spec.kind} {_span(spec.size, time)}{step}{offset} of {time.name}"',
        'return f"{spec.kind}{step}{offset} of {time.name}"',
        ("tests/sql/test_edits.py::test_a_refusal_names_both_definitions",),
    ),
    Bug(
        "an accumulator takes the place of one that was removed",
        "the parts of a state are in the order of their names",
        "states/kinds.py",
        "had.index(it) if it in had else",
        "has.index(it) if it in had else",
        (
            "tests/sql/test_edits.py::test_edits_that_are_kept_go_on_as_one_run",
            "tests/sql/test_edits.py::test_a_second_edit_finds_what_the_first_has_left",
        ),
    ),
]
