"""Functions: each is asked of Flink, and what is not here is refused with what to write."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.scope import Field, Scope
from malflow.sql.build.chains import chain
from malflow.sql.functions.scalar import INSTEAD, SCALAR
from malflow.sql.functions.times import instant
from malflow.sql.parser.statements import parse, parse_columns
from malflow.sql.text import Source, SqlError
from malflow.sql.typed import Typed
from tests.oracles.sql_cases import CASES

SCHEMA = (
    "i INT, d DOUBLE, p DECIMAL(8, 2), s STRING, ts TIMESTAMP(3), u TIMESTAMP(6), dt DATE, tm TIME(0), a ARRAY<INT>"
)
ROW = (7, 2.5, None, "text", 0, 0, 0, 0, (1, 2))


def value_of(expression: str, row: tuple[Any, ...] = ROW, schema: str = SCHEMA) -> Any:
    """Return the value of an expression for a row."""
    node, width, source = bound(expression, schema)
    ((value,),) = chain(width, [node], source)([row])
    return value


def bound(expression: str, schema: str = SCHEMA) -> tuple[Typed, int, Source]:
    """Return an expression with its types, how many columns there are, and its text."""
    source = Source(f"SELECT {expression}")
    (select,) = parse(source)
    fields = [Field(it.name.text, it.type) for it in parse_columns(Source(schema))]  # type: ignore[union-attr]
    binder = ExpressionBinder(Scope(fields, source))
    return binder.bind(select.items[0].expression), len(fields), source  # type: ignore[attr-defined]


def test_each_function_is_asked_of_flink() -> None:
    words = {it for case in CASES.values() for it in re.findall(r"\w+", case["sql"].upper())}
    assert sorted(SCALAR.keys() - words - {"CEILING"}) == []


@pytest.mark.parametrize("name", INSTEAD)
def test_functions_that_are_not_here_are_refused_with_what_to_write(name: str) -> None:
    with pytest.raises(SqlError, match=re.escape(f"no function {name}; {INSTEAD[name]}")):
        value_of(f"{name.lower()}(s)")


@pytest.mark.parametrize("name", ["CURRENT_TIMESTAMP", "current_date", "LOCALTIME"])
def test_the_time_of_the_clock_is_refused_without_brackets(name: str) -> None:
    with pytest.raises(SqlError, match="a replay would give another time"):
        value_of(name)


def test_columns_may_have_the_names_of_such_functions() -> None:
    assert value_of("current_date + now", (1, 2), "current_date INT, now INT") == 3


FAULTS = {
    "UPPER(i)": "no UPPER(INT); there is UPPER(text)",
    "UPPER()": "no UPPER(); there is UPPER(text)",
    "SUBSTRING(s, 'a')": "there is SUBSTRING(text, whole number, [whole number])",
    "REGEXP(s, '[')": "'[' is not a regular expression",
    "REGEXP(s, '[a&&b]')": "has a class within a class",
    "REGEXP(s, '\\p{Lu}x')": "\\p{Lu} is not supported here; write a range, such as A-Z",
    "REGEXP(s, '[\\p{L}]')": "\\p{L} is not supported in brackets",
    "s LIKE 'a!b' ESCAPE '!'": "'!' stands before % or _, or itself",
    "s LIKE 'a' ESCAPE 'ab'": "ESCAPE takes one character",
    "s SIMILAR TO '('": "is not a regular expression",
    "s SIMILAR TO '[[:WORDS:]]'": "there is no class [:WORDS:]",
    "DATE_FORMAT(ts, 'yyyy-nn')": "nn, which has no meaning here",
    "DATE_FORMAT(ts, 'yyyy''')": "has a quote that is not closed",
    "JSON_VALUE(s, 'a.b')": "other steps than .name and [index]",
    "JSON_VALUE(s, '$.a[*]')": "other steps than .name and [index]",
    "ROUND(p, i)": "ROUND",
    "SHA2(s, 17)": "SHA2 takes 224, 256, 384 or 512 bits, not 17",
    "MOD(d, 2)": "MOD takes whole numbers and DECIMALs",
    "d % 2": "no DOUBLE % INT",
    "TO_TIMESTAMP_LTZ(i, 6)": "TO_TIMESTAMP_LTZ takes seconds (0) or milliseconds (3)",
    "EXTRACT(DOY FROM tm)": "a TIME has no DOY",
    "FLOOR(tm TO MONTH)": "a TIME has no MONTH to begin with",
    "a[0]": "an array is indexed from 1",
    "a['x']": "an array is indexed by whole numbers from 1",
    "i || s": "no INT || STRING",
    "s + 'x'": "texts are joined by ||",
    "ts - ts": "TIMESTAMPDIFF(SECOND, a, b)",
    "GREATEST(i, s)": "no GREATEST(INT, STRING)",
    "CARDINALITY(i)": "there is CARDINALITY(array) or CARDINALITY(map)",
    "UNIX_TIMESTAMP()": "there is UNIX_TIMESTAMP(text)",
}


@pytest.mark.parametrize("expression", FAULTS)
def test_arguments_that_do_not_fit_are_refused(expression: str) -> None:
    with pytest.raises(SqlError) as caught:
        value_of(expression)
    assert FAULTS[expression] in str(caught.value)


FAILURES = {
    "CAST('1e400' AS INT)": "'1e400' is not of type INT",
    "CAST('x' AS DECIMAL(4, 2))": "'x' is not a number",
    "CAST(i * 100 AS TINYINT)": "700 does not fit into TINYINT",
    "CAST('maybe' AS BOOLEAN)": "'maybe' is not a BOOLEAN",
    "CAST('2026-02-30' AS DATE)": "'2026-02-30' is not a DATE: day is out of range for month",
    "10 / (i - 7)": "division by zero in '10 / (i - 7)' (SQL:1:8)",
    "i % (i - 7)": "division by zero",
    "ELEMENT(a)": "ELEMENT takes an array of one element, got 2",
    "FROM_BASE64(s || '!')": "'text!' is not Base64",
    "CONVERT_TZ('2026-01-01 00:00:00', 'UTC', 'Mars')": "there is no time zone 'Mars'",
    "REGEXP(s, s || '[')": "'text[' is not a regular expression",
    "UNIX_TIMESTAMP(s)": "'text' is not a TIMESTAMP",
    "s LIKE s || '%' || CHR(33) ESCAPE '!'": "'text%!' escapes ''",
}


@pytest.mark.parametrize("expression", FAILURES)
def test_values_that_do_not_fit_fail_with_the_value(expression: str) -> None:
    with pytest.raises((ValueError, ArithmeticError)) as caught:
        value_of(expression)
    assert FAILURES[expression] in str(caught.value)


def test_kept_values_are_told_apart() -> None:
    assert value_of("CASE CASE i + 1 WHEN 8 THEN i + 2 END WHEN 9 THEN 'both' WHEN 8 THEN 'one' END") == "both"
    assert value_of("NULLIF(i + 1, NULLIF(i + 2, i + 3)) + NULLIF(i + 1, NULLIF(i + 1, i + 1))") == 16
    assert value_of("i + 1 BETWEEN NULLIF(i + 0, 8) AND CASE i + 3 WHEN 10 THEN 8 END") is True


def test_expressions_that_keep_a_value_are_equal_if_they_say_the_same() -> None:
    """GROUP BY finds its columns in SELECT by this."""
    texts = ["CASE i + 1 WHEN 8 THEN 'a' END", "CASE  i + 1  WHEN 8 THEN 'a' END", "CASE i + 2 WHEN 8 THEN 'a' END"]
    one, same, other = (bound(it)[0] for it in texts)
    assert one == same
    assert one != other


MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
PATTERNS = {
    "yyyy-MM-dd HH:mm:ss.SSSSSS": "%Y-%m-%d %H:%M:%S.%f",
    "EEE, dd MMM yyyy hh:mm:ss a": "%a, %d %b %Y %I:%M:%S %p",
    "EEEE ''d MMMM yyyy": "%A '%-d %B %Y",
    "yyyyDDDHHmm": "%Y%j%H%M",
    "yy.M.d H'h' m s": "%y.%-m.%-d %-Hh %-M %-S",
}


@given(MOMENTS, st.sampled_from([*PATTERNS]))
def test_instants_are_formatted_as_by_strftime(moment: datetime, pattern: str) -> None:
    written = moment.replace(year=2000 + moment.year % 100) if "Y" in PATTERNS[pattern] else moment
    text = pattern.replace("'", "''")
    found = value_of(f"DATE_FORMAT(u, '{text}')", (*ROW[:5], instant(written, 6), *ROW[6:]))
    assert found == written.strftime(PATTERNS[pattern])


@given(MOMENTS, st.sampled_from(["yyyy-MM-dd HH:mm:ss.SSS", "EEE, dd MMM yyyy hh:mm:ss.SSS a", "yyyyDDDHHmmssSSS"]))
def test_texts_are_parsed_back_by_their_pattern(moment: datetime, pattern: str) -> None:
    units = instant(moment, 3)
    text = f"TO_TIMESTAMP(DATE_FORMAT(ts, '{pattern}'), '{pattern}')"
    assert value_of(text, (*ROW[:4], units, *ROW[5:])) == units


@given(MOMENTS, MOMENTS)
def test_months_between_instants_are_those_that_fit(one: datetime, other: datetime) -> None:
    schema, row = "x TIMESTAMP(3), y TIMESTAMP(3)", (instant(one, 3), instant(other, 3))
    months = value_of("TIMESTAMPDIFF(MONTH, x, y)", row, schema)
    start, end = sorted(row)
    reached = [value_of(f"TIMESTAMPADD(MONTH, {abs(months) + it}, x)", (start, end), schema) for it in (0, 1)]
    assert reached[0] <= end < reached[1]
    assert (months < 0) <= (other < one)


UNITS = {"SECOND": timedelta(seconds=1), "HOUR": timedelta(hours=1), "DAY": timedelta(days=1)}


@given(MOMENTS, st.sampled_from([*UNITS]))
def test_instants_lie_between_the_floor_and_the_ceiling(moment: datetime, unit: str) -> None:
    row = (*ROW[:5], instant(moment, 6), *ROW[6:])
    low, high = value_of(f"FLOOR(u TO {unit})", row), value_of(f"CEIL(u TO {unit})", row)
    step = UNITS[unit] // timedelta(microseconds=1)
    assert low <= row[5] <= high
    assert (low % step, high % step, high - low) in {(0, 0, 0), (0, 0, step)}
