import csv
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError
from malflow.connectors.files import lines
from malflow.sources import BadRecord, CsvSource


def rows(tmp_path: Path, content: str, **options: Any) -> list[Any]:
    path = tmp_path / "file.csv"
    path.write_bytes(content.encode())
    partition = CsvSource(path, **options).build_part(str(path), None)
    values: list[Any] = []
    while not partition.is_finished():
        values += partition.poll_batch(100)[0]
    return values


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [{"a": "1", "b": "2"}]),
        ({"header": True}, [{"a": "1", "b": "2"}]),
        ({"header": False}, [["a", "b"], ["1", "2"]]),
        ({"fields": ["x", "y"]}, [{"x": "a", "y": "b"}, {"x": "1", "y": "2"}]),
        ({"fields": ["x", "y"], "header": True}, [{"x": "1", "y": "2"}]),
    ],
)
def test_names_come_from_the_header_or_from_the_caller(
    tmp_path: Path, options: dict[str, Any], expected: list[Any]
) -> None:
    assert rows(tmp_path, "a,b\n1,2\n", **options) == expected


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path, "\n\r\na,b\n\n1,2\n\n\n3,4\n\n") == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert rows(tmp_path, "\n1\n\n1,2\n", header=False) == [["1"], ["1", "2"]]
    assert rows(tmp_path, "\n" * 500 + "a\n" + "\n" * 500 + "1\n") == [{"a": "1"}]


def test_quotes_may_be_others_or_none(tmp_path: Path) -> None:
    assert rows(tmp_path, "a;b\n'1;\n1';2\n", delimiter=";", quotechar="'") == [{"a": "1;\n1", "b": "2"}]
    assert rows(tmp_path, 'a,b\n"1,"2\n', quotechar=None) == [{"a": '"1', "b": '"2'}]


@pytest.mark.parametrize(
    ("content", "options", "line", "reason"),
    [
        ("a,b,a\n", {}, 1, "the field name 'a' more than once"),
        ("\na,,b\n", {}, 2, "an empty field name"),
        ("a,b\n", {"header": True, "fields": ["a"]}, 1, "2 fields in the header, expected 1"),
        ('a,"b\n', {}, 1, "a quote is opened and not closed"),
        ("a,\0\n", {}, 1, "a NUL character"),
    ],
)
def test_a_header_that_can_not_be_used_is_raised_always(
    tmp_path: Path, content: str, options: dict[str, Any], line: int, reason: str
) -> None:
    with pytest.raises(BadRecord, match="correct it, or override it with header=True, fields=") as bad:
        rows(tmp_path, content, on_error="skip", **options)
    assert (bad.value.line, bad.value.reason) == (line, reason)


def test_an_open_quote_costs_its_own_line_only(tmp_path: Path) -> None:
    dead_letters: list[BadRecord] = []
    content = 'a,b\n1,"2\n' + "3,4\n" * 1000
    assert len(rows(tmp_path, content, on_error=dead_letters.append)) == 1000
    assert [(bad.line, bad.record) for bad in dead_letters] == [(2, '1,"2')]


def test_a_field_longer_than_the_limit_is_a_bad_record(tmp_path: Path) -> None:
    long = "x" * (csv.field_size_limit() + 1)
    dead_letters: list[BadRecord] = []
    assert rows(tmp_path, f"a\n{long}\n1\n", on_error=dead_letters.append) == [{"a": "1"}]
    assert dead_letters[0].reason == "a field longer than csv.field_size_limit()"
    assert len(str(dead_letters[0])) < 400


@pytest.mark.slow
def test_a_file_of_nothing_but_bad_rows_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(b"a,b\n" + b"1\n" * 50_000)
    monkeypatch.setattr(lines, "CHUNK", 1 << 10)
    source = CsvSource(path, on_error="skip")
    partition = source.build_part(str(path), None)
    held: list[int] = []
    original = partition._parse_one_by_one

    def watched(in_hand: Any, limit: int) -> Any:
        held.append(len(in_hand.lines))
        return original(in_hand, limit)

    partition._parse_one_by_one = watched  # type: ignore[assignment, method-assign]
    while not partition.is_finished():
        assert not partition.poll_batch(1000)[0]
        assert len(partition.take_rejected()) <= 1000
    assert source.skipped == {str(path): 50_000}
    assert max(held) < 2_000


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fields": "abc"}, "list of names"),
        ({"fields": [1]}, "list of names"),
        ({"fields": []}, "no field names"),
        ({"fields": ["a", ""]}, "none empty"),
        ({"fields": ["a", "b", "a"]}, "'a' more than once"),
        ({"delimiter": ""}, "delimiter"),
        ({"delimiter": ",,"}, "delimiter"),
        ({"delimiter": '"'}, "a delimiter is neither the quote nor a line break"),
        ({"delimiter": "\n"}, "a delimiter is neither the quote nor a line break"),
        ({"quotechar": "''"}, "quotechar"),
    ],
)
def test_mistakes_are_found_when_the_source_is_made(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        CsvSource("x.csv", **options)
