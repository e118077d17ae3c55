"""The planted bugs of look-ups."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["LOOKUP_BUGS"]

_LOOKUP = "operators/calls/lookup.py"
_TESTS = "tests/lookups/test_lookup.py"
_TABLES = "tests/lookups/test_tables.py"

LOOKUP_BUGS = [
    Bug(
        "a repeated task asks anew",
        "without output there is nothing to store",
        _LOOKUP,
        "    is_repeatable = False\n",
        "    is_repeatable = True\n",
        ("tests/lookups/test_repeated_tasks.py",),
    ),
    Bug(
        "a table is asked for each record",
        "the keys of a batch are those of its records",
        _LOOKUP,
        "asked = [key for key in wanted if key not in rows]",
        "asked = [key for key in keys if key not in rows]",
        (f"{_TESTS}::test_records_are_joined_as_with_a_dict",),
    ),
    Bug(
        "the absence of a row is kept as long as a row",
        "it is an answer as any other",
        _LOOKUP,
        "(kept / _ABSENT_SHARE if row is None else kept)",
        "kept",
        (f"{_TESTS}::test_the_cache_forgets_rows_after_their_time_and_absence_sooner",),
    ),
    Bug(
        "rows that were not asked for are accepted",
        "nobody reads them",
        _LOOKUP,
        "    if unasked:\n",
        "    if unasked and False:\n",
        (f"{_TESTS}::test_a_wrong_answer_names_key_and_table",),
    ),
    Bug(
        "a spelling that only the database finds has no row",
        "keys are equal or not",
        "connectors/sql/lookup.py",
        "if key not in found and _folded(key) in spellings:",
        "if False:",
        (f"{_TABLES}::test_a_spelling_that_only_the_database_finds_is_an_error",),
    ),
    Bug(
        "the last of several rows of a key counts",
        "a key has one row",
        "connectors/tables/rows.py",
        "            if key in found:\n",
        "            if key in found and False:\n",
        (f"{_TABLES}::test_a_table_that_does_not_fit",),
    ),
    Bug(
        "the URL of a look-up lacks the table",
        "the path is the database and what follows it",
        "connectors/postgres/by_name.py",
        "    if not table:\n",
        "    if False:\n",
        ("tests/lookups/test_by_url.py::test_refused_tables",),
    ),
    Bug(
        "a table by its URL is a source",
        "a connection is read",
        "streams/arguments.py",
        "        return table.lookup()\n",
        "        return table.source()\n",
        ("tests/lookups/test_by_url.py::test_records_are_joined_with_the_rows_of_a_url",),
    ),
]
