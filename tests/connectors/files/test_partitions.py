"""Folders of partitions, such as ``day=2026-01-01``, as columns of the records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from malflow import GraphError, connect
from malflow.connectors.parquet import ParquetSource
from malflow.sources import BadRecord, CsvSource, InputFileError, JsonLinesSource, TextFileSource

DAY, REGION = date(2026, 1, 1), "eu"
TYPED = {"day": date, "region": str}


class Format(NamedTuple):
    """A format of files.

    Attributes:
        make: the class of its source.
        write: writes rows into a file.
        ending: the ending of its files.
    """

    make: Callable[..., Any]
    write: Callable[[Path, list[dict[str, Any]]], None]
    ending: str

    def file(self, folder: Path, *rows: dict[str, Any]) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"x.{self.ending}"
        self.write(path, list(rows))
        return path


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]))


def write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("\n".join(map(json.dumps, rows)))


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def csv_of_ints(path: Any, **options: Any) -> CsvSource:
    return CsvSource(path, **{"types": {"n": int}, **options})


CSV = Format(csv_of_ints, write_csv, "csv")
JSON = Format(JsonLinesSource, write_json, "jsonl")
PARQUET = Format(ParquetSource, write_parquet, "parquet")


@pytest.fixture(params=[CSV, JSON, PARQUET], ids=["csv", "json", "parquet"])
def kind(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


def records(source: Any) -> list[Any]:
    found: list[Any] = []
    source = cloudpickle.loads(cloudpickle.dumps(source))
    for part in source.list_parts():
        reader = source.build_part(part, None)
        while not reader.is_finished():
            found += reader.poll_batch(2)[0]
    return found


def test_folders_are_typed_columns_after_those_of_the_file(kind: Format, tmp_path: Path) -> None:
    kind.file(tmp_path / "day=2026-01-01" / "region=eu", {"n": 1}, {"n": 2})
    kind.file(tmp_path / "day=2026-01-02" / "region=us", {"n": 3})
    found = records(kind.make(f"{tmp_path}/*/*/x.*", partitions=TYPED))
    assert found == [
        {"n": 1, "day": DAY, "region": "eu"},
        {"n": 2, "day": DAY, "region": "eu"},
        {"n": 3, "day": date(2026, 1, 2), "region": "us"},
    ]
    assert list(found[0]) == ["n", "day", "region"]


def test_a_folder_has_the_files_of_its_partitions(kind: Format, tmp_path: Path) -> None:
    for folder, n in (("day=2026-01-01", 1), ("day=2026-01-02", 2), ("_old/day=2026-01-03", 3), ("sub", 4)):
        kind.file(tmp_path / folder, {"n": n})
    assert [it["n"] for it in records(kind.make(f"{tmp_path}/", partitions={"day": date}))] == [1, 2]
    with pytest.raises(InputFileError, match="matches no files"):
        kind.make(f"{tmp_path}/").list_parts()


def test_all_folders_are_texts_if_partitions_is_true(kind: Format, tmp_path: Path) -> None:
    kind.file(tmp_path / "day=2026-01-01" / "hour=07", {"n": 1})
    assert records(kind.make(f"{tmp_path}/", partitions=True)) == [{"n": 1, "day": "2026-01-01", "hour": "07"}]


@pytest.mark.parametrize(
    ("folder", "of", "value"),
    [
        ("k=__HIVE_DEFAULT_PARTITION__", str, None),
        ("k=__HIVE_DEFAULT_PARTITION__", int, None),
        ("k=07", int, 7),
        ("k=a%2Fb%3D%20c%25", str, "a/b= c%"),
        ("k=100%", str, "100%"),
        ("k=", str, ""),
        ("k=", int | None, None),
        ("k=a=b", str, "a=b"),
        ("k=Zürich", str, "Zürich"),
        ("k=true", bool, True),
        ("k=-1.50", Decimal, Decimal("-1.50")),
        ("k=2026-01-01 10%3A30%3A00", datetime, datetime(2026, 1, 1, 10, 30)),
        ("k=ab", str.upper, "AB"),
    ],
)
def test_values_of_folders(folder: str, of: Any, value: Any, kind: Format, tmp_path: Path) -> None:
    path = kind.file(tmp_path / folder, {"n": 1})
    [record] = records(kind.make(path, partitions={"k": of}))
    assert record == {"n": 1, "k": value}
    assert type(record["k"]) is type(value)


def test_a_name_of_a_folder_is_decoded(kind: Format, tmp_path: Path) -> None:
    path = kind.file(tmp_path / "my%20key=1", {"n": 1})
    assert records(kind.make(path, partitions={"my key": int})) == [{"n": 1, "my key": 1}]


@pytest.mark.parametrize(
    ("folder", "partitions", "told"),
    [
        ("day=2026-01-01", TYPED, r"x\.\w+' is in no folder 'region=\.\.\.', a column in partitions="),
        ("day=2026-13-01/region=eu", TYPED, r"x\.\w+' is in folder 'day=2026-13-01': field 'day' is not date"),
        ("k=1_000", {"k": int}, "in folder 'k=1_000': field 'k' is not int: '1_000'"),
        ("k=", {"k": int}, r"in folder 'k=': field 'k' is not int: ''; write int \| None"),
        ("k=%FF", {"k": str}, "in folder 'k=%FF': 'utf-8' codec can't decode"),
        ("k=1/k=2", {"k": int}, "is in two folders of 'k', 'k=1' and 'k=2'"),
        ("k=1/k=2", True, "is in two folders of 'k', 'k=1' and 'k=2'"),
        ("plain", True, "is in no folder such as 'day=2024-05-01', for partitions=True"),
    ],
)
def test_a_folder_that_does_not_fit_is_an_error_at_the_start(
    folder: str, partitions: Any, told: str, kind: Format, tmp_path: Path
) -> None:
    source = kind.make(kind.file(tmp_path / folder, {"n": 1}), partitions=partitions)
    with pytest.raises(InputFileError, match=told):
        source.list_parts()


def test_folders_that_differ_need_names(kind: Format, tmp_path: Path) -> None:
    kind.file(tmp_path / "day=2026-01-01", {"n": 1})
    kind.file(tmp_path / "day=2026-01-02" / "hour=1", {"n": 2})
    told = r"hour=1/x\.\w+' is in folders of day, hour, and '.*' in those of day; name .* partitions=\{'day': str\}"
    with pytest.raises(InputFileError, match=told):
        kind.make(f"{tmp_path}/", partitions=True).list_parts()
    assert len(records(kind.make(f"{tmp_path}/", partitions={"day": date}))) == 2


def test_a_file_that_comes_later_must_fit_too(kind: Format, tmp_path: Path) -> None:
    kind.file(tmp_path / "day=2026-01-01", {"n": 1})
    source = kind.make(f"{tmp_path}/", partitions={"day": date}, discover_every=timedelta(seconds=1))
    source.list_parts()
    kind.file(tmp_path / "day=tomorrow", {"n": 2})
    with pytest.raises(InputFileError, match="in folder 'day=tomorrow'"):
        source.list_again()


@pytest.mark.parametrize("kind", [CSV, PARQUET, JSON])
def test_a_column_of_the_file_can_not_be_a_partition_too(kind: Format, tmp_path: Path) -> None:
    path = kind.file(tmp_path / "day=2026-01-01" / "region=eu", {"n": 1, "day": "x"})
    told = r"column 'day' is in the file and in the name of its folder; pass partitions=\{'region': str\} to read that"
    for partitions, cure in ((TYPED, told), (True, told), ({"day": date}, "pass no partitions= to read that")):
        with pytest.raises((InputFileError, BadRecord), match=cure):
            records(kind.make(path, partitions=partitions))
    assert records(kind.make(path, partitions={"region": str})) == [{"n": 1, "day": "x", "region": "eu"}]


@dataclass
class Order:
    n: int
    day: date
    region: str = "none"


@pytest.mark.parametrize("partitions", [TYPED, {"day": date}, True])
def test_a_class_has_the_columns_of_folders(partitions: Any, tmp_path: Path) -> None:
    region = "none" if partitions == {"day": date} else REGION
    for kind, options in ((CSV, {"types": Order}), (JSON, {"types": Order}), (PARQUET, {"row": Order})):
        path = kind.file(tmp_path / "day=2026-01-01" / "region=eu", {"n": 1})
        if partitions is True and kind is PARQUET:
            continue  # its values are texts: the class has no say
        assert records(kind.make(path, partitions=partitions, **options)) == [Order(1, DAY, region)]


def test_types_of_fields_are_those_of_folders_too(tmp_path: Path) -> None:
    for kind in (CSV, JSON):
        path = kind.file(tmp_path / "day=2026-01-01" / "region=eu", {"n": 1})
        types = {"n": int, "day": date}
        wanted = {"n": 1, "day": DAY, "region": "eu"}
        assert records(kind.make(path, types=types, partitions=True)) == [wanted]
        assert records(kind.make(path, types=types, partitions={**TYPED, "day": date | None})) == [wanted]
        with pytest.raises(GraphError, match="field 'day' is str in partitions and date in types; write the same type"):
            kind.make(path, types=types, partitions={"day": str})


def test_parquet_chooses_among_columns_of_folders(tmp_path: Path) -> None:
    path = PARQUET.file(tmp_path / "day=2026-01-01" / "region=eu", {"n": 1, "m": 5}, {"n": 2, "m": 6})

    def read(**options: Any) -> list[Any]:
        return records(ParquetSource(path, partitions=TYPED, **options))

    assert read(columns=["region", "n"], row=tuple) == [("eu", 1), ("eu", 2)]
    assert read(columns=["day"], row=tuple) == [(DAY,), (DAY,)]
    assert read(row="day") == [DAY, DAY]
    assert read(row=lambda n, m, day, region: (n + m, day.year, region)) == [(6, 2026, "eu"), (8, 2026, "eu")]
    source = ParquetSource(path, partitions=TYPED, timestamp="day", row="n")
    assert source.build_part(str(path), None).poll_batch(5) == ([1, 2], [DAY, DAY])


def test_parquet_filters_by_folders_and_reads_no_row_of_others(tmp_path: Path) -> None:
    for folder, n in (("day=2026-01-01", 1), ("day=2026-01-02", 2), ("day=__HIVE_DEFAULT_PARTITION__", 3)):
        PARQUET.file(tmp_path / folder, {"n": n}, {"n": n + 10})
    day, n = pc.field("day"), pc.field("n")

    def read(condition: Any, **options: Any) -> list[Any]:
        return records(ParquetSource(f"{tmp_path}/", partitions={"day": date}, filter=condition, **options))

    assert read(day == date(2026, 1, 2), row="n") == [2, 12]
    assert read(day.is_null(), row="n") == [3, 13]
    assert read((day < date(2026, 1, 2)) & (n > 5)) == [{"n": 11, "day": DAY}]
    assert read([("day", "in", [DAY])], columns=["day"], row=tuple) == [(DAY,), (DAY,)]
    with pytest.raises(InputFileError, match="does not fit filter="):
        read(day == "2026-01-01")
    damaged = bytearray((tmp_path / "day=2026-01-02" / "x.parquet").read_bytes())
    damaged[4:40] = bytes(36)
    (tmp_path / "day=2026-01-02" / "x.parquet").write_bytes(damaged)
    assert read(day == DAY, row="n") == [1, 11]


def test_a_null_folder_is_no_timestamp(tmp_path: Path) -> None:
    path = PARQUET.file(tmp_path / "at=__HIVE_DEFAULT_PARTITION__", {"n": 1})
    source = ParquetSource(path, partitions={"at": date}, timestamp="at")
    with pytest.raises(InputFileError, match="has no timestamp in row 0: column 'at' is null there"):
        records(source)


def test_rows_of_csv_without_names_have_no_columns(tmp_path: Path) -> None:
    path = CSV.file(tmp_path / "day=2026-01-01", {"n": 1})
    with pytest.raises(GraphError, match="cannot add partitions to rows without field names; pass fields="):
        CsvSource(path, header=False, partitions=True)
    with pytest.raises(GraphError, match="CsvSource partitions: column 'day' is in the file and in the name"):
        CsvSource(path, fields=["day"], partitions={"day": date})
    named = CsvSource(path, fields=["n"], header=True, partitions={"day": date})
    assert records(named) == [{"n": "1", "day": DAY}]


def test_json_that_is_no_object_is_a_bad_record(tmp_path: Path) -> None:
    folder = tmp_path / "day=2026-01-01"
    folder.mkdir()
    (folder / "x.jsonl").write_text('[1]\n{"n": 2}\n')
    source = JsonLinesSource(folder / "x.jsonl", partitions={"day": date}, on_error="skip")
    assert records(source) == [{"n": 2, "day": DAY}]
    with pytest.raises(BadRecord, match="line 1: not an object, to which partitions= could add a column"):
        records(JsonLinesSource(folder / "x.jsonl", partitions={"day": date}))


def test_a_bad_record_has_the_columns_when_it_is_read_again(tmp_path: Path) -> None:
    path = CSV.file(tmp_path / "day=2026-01-01", {"n": 1})
    source = csv_of_ints(path, partitions={"day": date})
    assert source.read_again(str(path), "5") == {"n": 5, "day": DAY}


def test_a_type_must_be_read_from_text(kind: Format, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="cannot read field 'day' as list; pass int, float, bool, str"):
        kind.make(tmp_path / "x", partitions={"day": list[int]})


def test_lines_of_text_have_no_columns(tmp_path: Path) -> None:
    for partitions in (True, {"day": date}):
        with pytest.raises(
            GraphError, match=r"TextFileSource partitions can't be columns.* key of each record: msg\.key"
        ):
            TextFileSource(tmp_path / "x.txt", partitions=partitions)


def test_urls_and_configurations_name_types(tmp_path: Path) -> None:
    for kind in (JSON, PARQUET):
        kind.file(tmp_path / kind.ending / "day=2026-01-01" / "region=eu", {"n": 1})
        url = f"{tmp_path}/{kind.ending}/?format={kind.ending.removesuffix('l')}"
        texts = [{"n": 1, "day": "2026-01-01", "region": "eu"}]
        assert records(connect(f"{url}&partitions=true").source()) == texts
        assert records(connect(f"{url}&partitions.day=date").source()) == [{"n": 1, "day": DAY}]
        configured: Mapping[str, Any] = {"day": "date", "region": "str"}
        assert records(connect(url, partitions=configured).source()) == [{"n": 1, "day": DAY, "region": "eu"}]
        with pytest.raises(GraphError, match="cannot read field 'day' as 'dat'; pass int, float"):
            connect(f"{url}&partitions.day=dat").source()


@pytest.fixture
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.rm("/lake", recursive=True)


def test_folders_of_an_object_store(memory: Any) -> None:
    memory.pipe("/lake/day=2026-01-01/region=eu%20west/a.jsonl", b'{"n": 1}\n')
    memory.pipe("/lake/.hidden/day=2026-01-01/region=eu/a.jsonl", b"{")
    wanted = [{"n": 1, "day": DAY, "region": "eu west"}]
    for path in ("memory://lake/", "memory://lake/*/*/*.jsonl"):
        assert records(JsonLinesSource(path, partitions=TYPED)) == wanted


def test_folders_that_are_no_columns_are_told(kind: Format, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = kind.file(tmp_path / "day=2026-01-01" / "hour=7" / "region=eu", {"n": 1})
    for given in (True, False, {"day": date, "hour": int, "region": str}):
        kind.make(path, partitions=given).list_parts()
    assert caplog.text == ""
    kind.make(path).list_parts()
    assert "is in a folder named 'day=2026-01-01', and its records do not get that value" in caplog.text
    assert "pass partitions={'day': date} to have it as a column, or partitions=False if they do not" in caplog.text
    kind.make(path, partitions={"day": date}).list_parts()
    assert "a folder named 'hour=7', " in caplog.text
    assert "pass partitions={'day': date, 'hour': int} to have it" in caplog.text


def test_folders_of_text_files_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "day=2024-05-01").mkdir()
    (tmp_path / "n=1.txt").write_text("day=1\n")
    TextFileSource(tmp_path / "*.txt").list_parts()
    assert caplog.text == ""
    path = tmp_path / "day=2024-05-01" / "part.txt"
    path.write_text("1\n")
    TextFileSource(path, partitions=False).list_parts()
    assert caplog.text == ""
    TextFileSource(path).list_parts()
    assert "is in a folder named 'day=2024-05-01', and its records do not get that value" in caplog.text
    assert "take it from the name of the file, which is the key of each record: msg.key" in caplog.text
