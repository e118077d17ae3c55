"""Each example's `main()`, run in this process, against the output in Malstrom's guide."""

import importlib
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from examples import file_sink_stateful, file_source_stateful, scheduled_reports
from malflow import MAX, DataMessage, SingleThreadRuntime, StreamProvider
from malflow.sources import SingleIteratorSource, StatefulSource, StatelessSource
from tests.kit.driving import compiled
from tests.kit.extras import skipping
from tests.kit.nights import at_night

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.py"))}

Run = Callable[..., list[str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run an example's main() and return the lines that it printed."""

    def run_example(name: str, *arguments: object) -> list[str]:
        with skipping(name):
            importlib.import_module(f"examples.{name}").main(*arguments)
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.splitlines()

    return run_example


def line(key: object, value: object, timestamp: object) -> str:
    return f"{{ key: {key!r}, value: {value!r}, timestamp: {timestamp!r} }}"


def unkeyed(values: Iterable[object]) -> list[str]:
    return [f"{{ key: NoKey, value: {value!r}, timestamp: {index} }}" for index, value in enumerate(values)]


def test_every_example_has_a_test() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    tests = {name for text in texts for name in re.findall(r"^def test_(\w+)", text, re.MULTILINE)}
    files = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}

    assert [name for name in SOURCES if name not in tests | files] == []


def test_every_example_stands_in_the_readme_with_a_docstring_and_a_main() -> None:
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")

    for name, source in SOURCES.items():
        assert f"[`{name}.py`]({name}.py)" in readme
        assert source.startswith('"""')
        assert name == "first" or "def main(" in source


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", at_night(["first", "look_ma_im_streaming", "file_source_stateful", "flight_delays"], but=["first"])
)
def test_an_example_runs_as_a_script_without_a_warning(name: str, tmp_path: Path) -> None:
    script = [sys.executable, "-W", "error", "-X", "dev", EXAMPLES / f"{name}.py"]

    done = subprocess.run(script, cwd=tmp_path, capture_output=True, check=False, encoding="utf-8")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", [name for name, source in SOURCES.items() if "\ndef build_" in source and name != "first"]
)
@pytest.mark.slow
def test_an_example_prints_the_same_on_three_workers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"examples.{name}")
    builds = [getattr(module, function) for function in dir(module) if function.startswith("build_")]

    for build_dataflow in builds:
        printed = []
        for parallelism in (1, 3):
            SingleThreadRuntime(build_dataflow, parallelism=parallelism).execute()
            lines = capsys.readouterr().out.splitlines()
            printed.append(Counter(re.sub(r" @ worker [012]$", "", text) for text in lines))
        assert printed[0] == printed[1]


def test_first(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "first.py"))

    assert capsys.readouterr().out.splitlines() == unkeyed(["TO", "BE", "OR", "NOT"])


@pytest.mark.slow
def test_flight_delays(run: Run) -> None:
    lines = run("flight_delays")
    days = [text for text in lines if re.match(r"\d\d ", text)]

    assert [text[:2] for text in days] == [f"{day:02}" for day in [*range(1, 32), 1]]
    assert days[1] == "02     ▁▁▁▂▂▄▁▁▂▃▅▃▃▅▄▄▃▄██      ▁▁▁▃▁▂▁▁▁▁▁▂▂▁▁▂▂▁▅      ▁▁▁▁▁▁▁▁▂▁▁▁▁▁▂▁█▆ "
    assert "UA         4,605         8.3      385" in lines
    assert lines[-2] == "cancelled:               {'EWR': 238, 'JFK': 100, 'LGA': 183}"
    assert lines[-1] == "too late for their hour: {'EWR': 27, 'JFK': 23, 'LGA': 28}"


def test_basic_noop(run: Run) -> None:
    assert run("basic_noop") == []


def test_basic_operators(run: Run) -> None:
    assert run("basic_operators") == [str(value) for value in range(0, 201, 2)]


def test_look_ma_im_streaming(run: Run) -> None:
    assert run("look_ma_im_streaming") == [
        "{ key: NoKey, value: 'LOOK', timestamp: 0 }",
        """{ key: NoKey, value: "MA'", timestamp: 1 }""",
        """{ key: NoKey, value: "I'M", timestamp: 2 }""",
        "{ key: NoKey, value: 'STREAMING', timestamp: 3 }",
    ]


def test_cloned_streams(run: Run) -> None:
    lines = run("cloned_streams")

    assert Counter(lines) == Counter(unkeyed(range(101)) * 2)


def test_split_streams(run: Run) -> None:
    lines = run("split_streams")
    everything = unkeyed(range(101))

    assert Counter(lines) == Counter(everything + everything[::2])


def test_joining_streams(run: Run) -> None:
    assert Counter(run("joining_streams")) == Counter(unkeyed(range(101)) * 2)


def test_top_by_city(run: Run) -> None:
    assert run("top_by_city") == [
        line("Ulm", "Ann 7", 0),
        line("Ulm", "Bob 9, Ann 7", 1),
        line("Ulm", "Bob 9, Ann 7, Cem 4", 2),
        line("Ulm", "Bob 9, Ann 7, Dora 5", 3),
        line("Ulm", "Ann 7, Dora 5, Cem 4", 4),
        line("Bonn", "Bob 9", 4),
        line("Ulm", "Dora 5, Cem 4, Ann 3", 5),
    ]


def test_event_time(run: Run) -> None:
    assert run("event_time") == [
        "{ key: (2025, 1), value: 830, timestamp: datetime.date(2025, 1, 31) }",
        "{ key: (2025, 2), value: -165, timestamp: datetime.date(2025, 2, 28) }",
        "{ key: (2025, 3), value: 145, timestamp: datetime.date(2025, 3, 31) }",
        "{ key: (2025, 4), value: -15, timestamp: MAX }",
    ]


def test_event_time_out_of_order(run: Run) -> None:
    lines = run("event_time_out_of_order")

    def at(month: int, day: int) -> str:
        return f"datetime.date(2025, {month}, {day})"

    def balance(month: int, day: int, amount: int) -> str:
        return f"{{ key: {at(month, day)}, value: ('balance', {amount}), timestamp: {at(month, day)} }}"

    assert [text for text in lines if "balance" in text] == [
        balance(1, 31, 1000 - 20),
        balance(2, 28, -300 + 60),
        balance(3, 31, -55 + 200),
        balance(4, 30, -10 - 5),
    ]
    assert [text for text in lines if "late" in text] == [
        f"{{ key: NoKey, value: ('late', -150), timestamp: {at(1, 17)} }}",
        f"{{ key: NoKey, value: ('late', 75), timestamp: {at(2, 25)} }}",
    ]
    assert len(lines) == 6


def test_custom_stateless_operator(run: Run) -> None:
    timestamps = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]

    assert run("custom_stateless_operator") == [
        f"{{ key: NoKey, value: {value}, timestamp: {timestamp} }}"
        for value, timestamp in zip(range(1, 11), timestamps, strict=True)
    ]


def test_custom_stateful_operator(run: Run) -> None:
    full = [
        f"{{ key: NoKey, value: {list(range(first, first + 5))}, timestamp: {first + 4} }}"
        for first in range(0, 100, 5)
    ]

    assert run("custom_stateful_operator") == [*full, "{ key: NoKey, value: [100], timestamp: MAX }"]


def test_custom_trigger(run: Run) -> None:
    assert run("custom_trigger") == [
        line("tea", 105, 12),
        line("books", 60, 30),
        line("tea", 15, 63),
        line("books", 99, 70),
    ]


def test_paid_orders(run: Run) -> None:
    assert sorted(run("paid_orders")) == [
        line("A1", (30, 30), 10),
        line("A2", (12, 12), 2),
        line("A3", (50, None), 13),
        line("A4", (8, 8), 21),
    ]


def test_sales_rollup(run: Run) -> None:
    assert run("sales_rollup") == [
        "books, 28 March to 29 March: Sales(orders=72, total=720, mean=10.0) FINAL",
        "tea, 28 March to 29 March: Sales(orders=4, total=6, mean=1.5) FINAL",
        "books, 29 March to 30 March: Sales(orders=69, total=690, mean=10.0) FINAL",
        "tea, 29 March to 30 March: Sales(orders=3, total=15, mean=5.0) FINAL",
        "books, 30 March to 31 March: Sales(orders=39, total=390, mean=10.0) END",
        "tea, 30 March to 31 March: Sales(orders=2, total=15, mean=7.5) END",
        "books, 01 March to 01 April: Sales(orders=180, total=1800, mean=10.0) END",
        "tea, 01 March to 01 April: Sales(orders=9, total=36, mean=4.0) END",
    ]


def test_closed_days(run: Run) -> None:
    assert run("closed_days") == [
        "books, 28 March: 7 FINAL",
        "books, 29 March: 20 FINAL",
        "books, 30 March: 21 EARLY",
        "tea, 28 March: 3 FINAL",
        "tea, 29 March: 15 FINAL",
        "the same in the snapshot: True",
        "tea in all: 18",
        "[{'shop': 'books', 'total': 48}, {'shop': 'tea', 'total': 18}]",
    ]


def test_dashboard(run: Run) -> None:
    assert run("dashboard") == [
        '/ {"books": 48, "tea": 18}',
        '/tea [{"day": "28 March", "amount": 3, "timing": "FINAL"}, '
        '{"day": "29 March", "amount": 15, "timing": "FINAL"}]',
    ]


def test_scored_orders(run: Run) -> None:
    scored = [("Ada", 70, 7, 0), ("Bob", 15, 1, 1), ("Ada", 42, 4, 3), ("Bob", 99, 9, 4), ("Eve", 7, 0, 5)]
    rows = [(f"Order(customer={name!r}, amount={amount})", risk, at) for name, amount, risk, at in scored]
    assert run("scored_orders") == [
        *(f"{{ key: NoKey, value: Scored(order={order}, risk={risk}), timestamp: {at} }}" for order, risk, at in rows),
        "Eve: an amount can't be negative, after 1 attempt(s)",
        "{'calls': 6, 'retried': 3, 'opened': 0, 'letters': 1}",
    ]


@pytest.mark.slow
def test_device_status(run: Run, tmp_path: Path) -> None:
    rows = {"pump": {"device": "pump", "heat": 97, "ok": False}, "fan": {"device": "fan", "heat": 21, "ok": True}}
    answers = ["start: done", "stop: done", "start: refused at 97 degrees", "stop: there is no fan"]
    read = [f"running: {rows}", f"stopped: {rows}", "outside: [('pump', 97, 0), ('fan', 21, 1)]"]

    assert run("device_status", tmp_path / "devices") == [
        *(line(("pump", "fan")[index % 2], answer, index) for index, answer in enumerate(answers)),
        *read,
    ]
    assert run("device_status", tmp_path / "devices") == read, "the table is there again, and no command comes again"


def test_log_sessions(run: Run) -> None:
    assert run("log_sessions") == [
        "bob, 09:01 to 09:31: Visit(pages=1, first='/home', last='/home')",
        "ann, 09:00 to 09:34: Visit(pages=3, first='/home', last='/books')",
        "bob, 09:40 to 10:12: Visit(pages=2, first='/tea', last='/pay')",
        "ann, 10:10 to 10:40: Visit(pages=1, first='/home', last='/home')",
        "bob, 11:00 to 11:30: Visit(pages=1, first='/home', last='/home')",
    ]


@pytest.mark.slow
def test_scheduled_reports(run: Run) -> None:
    assert run("scheduled_reports") == [
        *("a run at 28 March 02:30", "a run at 29 March 03:00", "a run at 30 March 02:30"),
        *("report 1", "report 2", "report 3"),
    ]


def test_the_nightly_report_is_a_dataflow() -> None:
    compiled(scheduled_reports.nightly)


def test_brute_force_logins(run: Run) -> None:
    (alert,) = run("brute_force_logins")
    assert alert.startswith("{ key: 'ann', value: 'ann: 3 failures from 12:04 on, success at 12:06'")


def test_unpaid_orders(run: Run) -> None:
    assert [re.sub(r", timestamp.*", "", text) for text in run("unpaid_orders")] == [
        "{ key: 'A1', value: 'A1 paid at 13:00'",
        "{ key: 'A3', value: 'A3 unpaid since 12:03'",
        "{ key: 'A4', value: 'A4 open since 13:35'",
    ]


def test_fever_curve(run: Run) -> None:
    assert run("fever_curve") == [line("ann", [38.2, 38.6, 39.1], 30), line("bob", [38.3, 38.7, 39.0], 51)]


def test_heartbeat_lost(run: Run) -> None:
    assert run("heartbeat_lost") == [
        line("valve", "silent since 55", 85),
        line("pump", "silent since 100", 130),
        line("valve", "silent since 120", 150),
    ]


def test_three_streams(run: Run) -> None:
    assert sorted(run("three_streams")) == [
        line("A1", "ordered, then delivered, then paid", 4),
        line("A2", "ordered, then paid, then delivered", 3),
        line("A3", "overdue: only ordered, then delivered", 5),
        line("A4", "overdue: only ordered", 12),
    ]


def test_inactivity_alert(run: Run) -> None:
    alerts = [re.sub(r", timestamp.*", "", text) for text in run("inactivity_alert")]

    assert alerts == [
        "{ key: 'valve', value: 'silent since 12:01'",
        "{ key: 'pump', value: 'silent since 12:13'",
        "{ key: 'valve', value: 'silent since 12:30'",
    ]


def test_stateful_programs(run: Run) -> None:
    lines = run("stateful_programs")

    assert lines == [str(total) for total in accumulate(range(101))]
    assert lines[-1] == "5050"


def test_stateful_program_multiple_keys(run: Run) -> None:
    def total(value: int) -> int:
        """Add up the numbers of the value's parity up to it."""
        return sum(range(value % 2, value + 1, 2))

    lines = run("stateful_program_multiple_keys")

    assert lines == [line(value % 2 == 1, total(value), value) for value in range(101)]
    assert [total(value) for value in (0, 1, 2, 3, 4, 5, 98, 99, 100)] == [0, 1, 2, 4, 6, 9, 2450, 2500, 2550]


def placed(lines: list[str]) -> list[tuple[str, int, int, int]]:
    """Read the lines of an inspector that prints the message and the worker."""
    pattern = r"DataMessage\(key=(\w+), value=(\d+), timestamp=(\d+)\) @ worker (\d+)"
    matches = [re.fullmatch(pattern, text) for text in lines]
    assert None not in matches
    return [(match[1], int(match[2]), int(match[3]), int(match[4])) for match in matches if match]


def test_keyed_streams(run: Run) -> None:
    records = placed(run("keyed_streams"))

    assert sorted((value, key, timestamp) for key, value, timestamp, _ in records) == [
        (value, str(value % 2 == 0), value) for value in range(101)
    ]
    workers = {(key, worker) for key, _, _, worker in records}
    assert len(workers) == 2, "each key has one worker"
    assert {worker for _, worker in workers} <= {0, 1}
    for parity in ("True", "False"):
        values = [value for key, value, _, _ in records if key == parity]
        assert values == sorted(values), "a key's records keep their order"


@pytest.mark.slow
@pytest.mark.nightly
def test_multithreading(run: Run) -> None:
    lines = run("multithreading")
    middle = lines.index("in four processes, whose lines begin with their worker:")
    marked = [re.fullmatch(r"(\[worker \d\]) (.*)", text) for text in lines[middle + 1 :]]
    of_processes = [(match[1], match[2]) for match in marked if match]

    records = placed(lines[1:middle])
    assert sorted((int(key), value, timestamp) for key, value, timestamp, _ in records) == [
        (value, value * 2, value) for value in range(101)
    ]
    assert {worker for *_, worker in records} == {0, 1, 2, 3}
    assert sorted(placed([text for _, text in of_processes])) == sorted(records)
    assert all(mark == f"[worker {text[-1]}]" for mark, text in of_processes)


def test_file_sink_stateless(run: Run, tmp_path: Path) -> None:
    lines = run("file_sink_stateless", tmp_path)

    assert contents(tmp_path) == {f"{value}.txt": f"{value}\n" for value in range(5)}
    assert lines == [f"{tmp_path / str(value)}.txt: ['{value}']" for value in range(5)]


def test_file_sink_stateful(run: Run, tmp_path: Path) -> None:
    run("file_sink_stateful", tmp_path)

    assert contents(tmp_path) == {
        f"{key}.txt": "".join(f"{number} {number * 5 + key}\n" for number in range(10)) for key in range(5)
    }


@pytest.mark.parametrize("name", ["file_sink_stateless", "file_sink_stateful"])
def test_a_file_sink_makes_a_directory_when_it_is_given_none(
    run: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert len(run(name)) == 5
    (directory,) = tmp_path.iterdir()
    assert len(contents(directory)) == 5


def test_a_file_sink_goes_on_with_the_line_number_that_was_saved(tmp_path: Path) -> None:
    part = file_sink_stateful.FileSink(tmp_path).build_part(str(tmp_path / "0.txt"), 7)
    part.sink(DataMessage(0, 70, 0))

    assert contents(tmp_path) == {"0.txt": "7 70\n"}
    assert part.snapshot() == part.collect() == 8


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in directory.iterdir()}


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, list[str]]:
    """Write three files, one of them empty; return their lines by path."""
    lines = {"odd.txt": ["one", "three", "five"], "even.txt": ["two", "", "fôur"], "empty.txt": []}
    for name, text in lines.items():
        (tmp_path / name).write_text("\n".join(text), encoding="utf-8")
    return {str(tmp_path / name): text for name, text in lines.items()}


def check_file_source(run: Run, name: str, texts: dict[str, list[str]]) -> None:
    lines = run(name, *texts)

    for path, text in texts.items():
        of_file = [printed for printed in lines if repr(path) in printed]
        assert of_file == [line(path, value, index) for index, value in enumerate(text)]
    assert len(lines) == 6


def test_file_source_stateless(run: Run, texts: dict[str, list[str]]) -> None:
    check_file_source(run, "file_source_stateless", texts)


def test_file_source_stateful(run: Run, texts: dict[str, list[str]]) -> None:
    check_file_source(run, "file_source_stateful", texts)


@pytest.mark.parametrize("name", ["file_source_stateless", "file_source_stateful"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_time_ends_when_all_files_have(name: str, parallelism: int, texts: dict[str, list[str]]) -> None:
    wrap: Any = StatefulSource if name == "file_source_stateful" else StatelessSource
    source = importlib.import_module(f"examples.{name}").FileSource(*texts)
    log: list[object] = []

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("files", wrap(source)).key_distribute("one", lambda _msg: 0)
        stream.inspect("log", lambda msg, _ctx: log.append(msg.value)).inspect_frontier(
            "epochs", lambda epoch, ctx: log.append((epoch, ctx.worker_id))
        )

    SingleThreadRuntime(build_dataflow, parallelism=parallelism).execute()

    assert sorted(map(str, log[:6])) == sorted(value for text in texts.values() for value in text)
    assert sorted(log[6:], key=repr) == [(MAX, worker) for worker in range(parallelism)]


@pytest.mark.parametrize("name", ["file_source_stateless", "file_source_stateful"])
def test_a_file_source_reads_itself_when_it_is_given_no_file(run: Run, name: str) -> None:
    path = str(EXAMPLES / f"{name}.py")
    source = Path(path).read_text(encoding="utf-8")

    assert run(name) == [line(path, text, index) for index, text in enumerate(source.splitlines())]


def test_a_stateful_file_source_goes_on_at_the_next_line(texts: dict[str, list[str]]) -> None:
    path = next(iter(texts))
    source = file_source_stateful.FileSource(path)
    before = source.build_part(path, None)
    assert (before.poll(), before.poll()) == (("one", 0), ("three", 1))
    before.suspend()

    after = source.build_part(path, before.collect())

    assert (after.snapshot(), after.is_finished()) == (2, False)
    assert (after.poll(), after.poll()) == (("five", 2), None)
    assert (after.snapshot(), after.is_finished()) == (3, True)


def test_ttl_map_example(run: Run) -> None:
    lines = run("ttl_map_example")
    totals = [line(value % 2 == 1, sum(range(value % 2, value + 1, 2)), value) for value in range(100)]
    windows = ["foo", "foo|bar", "bar|hello", "hello|world", "world|baz"]

    assert lines == [*totals, *(line(0, window, index) for index, window in enumerate(windows))]


def test_an_epoch_of_joined_streams_is_the_lesser_one() -> None:
    epochs: list[Any] = []

    def build_dataflow(provider: StreamProvider) -> None:
        def one_epoch(name: str, time: int) -> Any:
            stream = provider.new_stream().source(name, StatelessSource(SingleIteratorSource([time])))
            timed = stream.assign_timestamps(f"{name} time", lambda msg: msg.value)
            on_time, _late = timed.generate_epochs(f"{name} epochs", lambda msg, _previous: msg.timestamp)
            return on_time

        joined = one_epoch("left", 10).union(one_epoch("right", 125))
        joined.inspect_frontier("log", lambda epoch, _ctx: epochs.append(epoch))

    SingleThreadRuntime(build_dataflow).execute()

    assert epochs[0] == 10
    assert epochs[-1] is MAX
    assert epochs == sorted(epochs)
    assert set(epochs) <= {10, 125, MAX}


@pytest.mark.slow
def test_column_bars(run: Run, tmp_path: Path) -> None:
    assert run("column_bars", tmp_path) == [
        "09:00 ADA        667 100.0 104.9 410209",
        "09:00 BABBAGE   2666 100.0 104.9 1638587",
        "09:00 CANTOR    1333 100.0 104.9 818792",
        "15 bars, 0 rows made",
    ]


def test_column_prices(run: Run) -> None:
    pytest.importorskip("polars")
    found = run("column_prices")
    assert [it for it in found if "tee" not in it] == [
        line("Ulm", 640, 0),
        line("Bonn", 450, 1),
        line("Kiel", 320, 3),
        line("Bonn", 1410, 4),
    ]
    assert [it for it in found if "tee" in it]


def test_parquet_totals(run: Run, tmp_path: Path) -> None:
    failed, count, *totals = run("parquet_totals", tmp_path)
    assert (failed, count) == ("failed: the machine breaks down", "30000 orders")
    assert len(totals) == 3
    for total in totals:
        summed, running = total.partition(": ")[2].split(" = ")
        assert summed == running
