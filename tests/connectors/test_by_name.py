"""Sources and sinks by their URL."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from malflow import GraphError, MissingDependency, SingleThreadRuntime, connect
from malflow.connectors.address import Address
from malflow.connectors.option_texts import options_for
from malflow.sinks import CsvSink, JsonLinesSink, TextFileSink, VecSink
from malflow.sources import CsvSource, JsonLinesSource, SingleIteratorSource, TextFileSource

MADE: list[tuple[Address, dict[str, Any]]] = []


def tapped(address: Address, /, *, limit: int = 10, settings: Mapping[str, str] | None = None) -> Any:
    """Return a source of nothing, and remember how it was made."""
    MADE.append((address, {"limit": limit, "settings": settings}))
    return SingleIteratorSource([limit])


def drained(address: Address, /, *, table: str) -> Any:
    """Return a sink that keeps everything."""
    MADE.append((address, {"table": table}))
    return VecSink()


@pytest.fixture(autouse=True)
def entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install entry points beside those of malflow."""
    files = "malflow.connectors.files.formats:"
    here = f"{__name__}:"
    points = [
        importlib.metadata.EntryPoint("file+csv", f"{files}csv_source", "malflow.sources"),
        importlib.metadata.EntryPoint("file+json", f"{files}json_source", "malflow.sources"),
        importlib.metadata.EntryPoint("file+text", f"{files}text_source", "malflow.sources"),
        importlib.metadata.EntryPoint("file+csv", f"{files}csv_sink", "malflow.sinks"),
        importlib.metadata.EntryPoint("file+json", f"{files}json_sink", "malflow.sinks"),
        importlib.metadata.EntryPoint("file+text", f"{files}text_sink", "malflow.sinks"),
        importlib.metadata.EntryPoint("tap", f"{here}tapped", "malflow.sources"),
        importlib.metadata.EntryPoint("tap", f"{here}drained", "malflow.sinks"),
        importlib.metadata.EntryPoint("spring", f"{here}tapped", "malflow.sources"),
        importlib.metadata.EntryPoint("tank+", f"{here}tapped", "malflow.sources"),
        importlib.metadata.EntryPoint("tank+deep", f"{here}drained", "malflow.sinks"),
        importlib.metadata.EntryPoint("well", f"{here}tapped", "malflow.sources"),
        importlib.metadata.EntryPoint("well", "elsewhere:tapped", "malflow.sources"),
        importlib.metadata.EntryPoint("gone", "malflow.gone:source", "malflow.sources"),
        importlib.metadata.EntryPoint("redis", "malflow.connectors.redis.gone:source", "malflow.sources"),
    ]
    known = importlib.metadata.EntryPoints(points)
    monkeypatch.setattr(importlib.metadata, "entry_points", known.select)
    MADE.clear()


def test_a_dataflow_of_urls(tmp_path: Path) -> None:
    (tmp_path / "towns.csv").write_text("name;people\nUlm;130000\n")

    def build_dataflow(provider: Any) -> None:
        towns = provider.new_stream().source("towns", connect(f"{tmp_path}/towns.csv?delimiter=;"))
        towns.map("name", lambda row: row["name"]).sink("out", connect(f"file://{tmp_path}/out.jsonl"))

    SingleThreadRuntime(build_dataflow).execute()
    assert (tmp_path / "out.jsonl").read_text() == '"Ulm"\n'


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("a/b.csv", CsvSource),
        ("b?.csv", CsvSource),
        ("s3://bucket/b/*.csv.gz?storage_options.anon=true", CsvSource),
        ("memory://x.ndjson", JsonLinesSource),
        ("file:///x.JSONL.gz", JsonLinesSource),
        ("x.log", TextFileSource),
        ("x?format=text", TextFileSource),
    ],
)
def test_the_format_of_a_file(url: str, kind: type) -> None:
    assert type(connect(url).source()) is kind


def test_file_sinks() -> None:
    assert type(connect("memory://x.txt?append=no").sink()) is TextFileSink
    assert type(connect("memory://x.csv?fields=a,b&header=no").sink()) is CsvSink
    assert type(connect("memory://x", format="json", formatter=repr).sink()) is JsonLinesSink


def test_parts_of_an_address() -> None:
    connect("tap://me:p%40ss@a:9092,b:9093/t%20x/y?limit=3&settings.linger.ms=5&settings.acks=all").source()
    address, options = MADE[0]
    assert (address.scheme, address.user, address.password) == ("tap", "me", "p@ss")
    assert (address.netloc, address.host, address.path) == ("a:9092,b:9093", "a", "t x/y")
    assert address.url == "tap://me:p%40ss@a:9092,b:9093/t%20x/y"
    assert address.authority == "me:p%40ss@a:9092,b:9093"
    assert options == {"limit": 3, "settings": {"linger.ms": "5", "acks": "all"}}


@pytest.mark.parametrize(("url", "host"), [("tap://a", "a"), ("tap://[::1]:92/x", "[::1"), ("tap:///x", "")])
def test_the_host_of_an_address(url: str, host: str) -> None:
    assert Address.parse(url).host.startswith(host)


def test_a_source_and_a_sink_of_one_scheme() -> None:
    assert isinstance(connect("tap://h/x", table="t").sink(), VecSink)
    with pytest.raises(GraphError, match="has no option 'table'; it has limit, settings"):
        connect("tap://h/x", table="t").source()


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("tap://me:hush@h/x?limti=3", {}, "has no option 'limti'; did you mean 'limit'?"),
        ("tap://me:hush@h/x?limit=many", {}, "needs an integer as option 'limit'; got 'many'"),
        ("tap://me:hush@h/x?limit=3", {"limit": 4}, "option 'limit' both in its URL and as an argument"),
        ("tap://me:hush@h/x?limit.x=3", {}, "an option 'limit', which is not a mapping"),
        ("tap://me:hush@h/x?settings=3", {}, "an option 'settings' that no URL can contain; pass the argument"),
        ("tap://me:hush@h/x?limit=3&limit=4", {}, "option 'limit' is in the URL twice"),
        ("tpa://me:hush@h/x", {}, "no connector for scheme 'tpa'; did you mean 'tap'?"),
        (
            "xyzzy://me:hush@h/x?token=hush",
            {},
            "scheme may be one of gone, redis, spring, tank+, tank+deep, tap, well; other packages",
        ),
        ("s3://me:hush@h/x.cvs", {}, "no connector for files of format 'cvs'; did you mean 'csv'?"),
        ("s3://me:hush@h/x", {}, "pass format=, such as format=csv"),
        ("well://me:hush@h/x", {}, "two packages have a connector for 'well': elsewhere:tapped and"),
        ("", {}, "connect needs a URL or a path; got str, empty"),
    ],
)
def test_refused_sources(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(GraphError) as refused:
        connect(url, **options).source()
    assert words in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_sink_without_a_needed_option() -> None:
    with pytest.raises(GraphError, match=r"needs the option 'table'; write \?table=... or pass table="):
        connect("tap://h/x").sink()


def test_a_side_that_a_connector_does_not_have() -> None:
    with pytest.raises(GraphError, match="can't be written to: its connector does not support it"):
        connect("spring://h").sink()


def test_connectors_that_cannot_be_imported() -> None:
    with pytest.raises(MissingDependency, match=r"needs malflow.gone:source, which can't be imported"):
        connect("gone://h").source()
    with pytest.raises(MissingDependency, match=r"pip install 'malflow\[redis\]'"):
        connect("redis://h").source()


def test_no_secret_in_what_is_shown() -> None:
    shown = [
        repr(connect("tap://me:hush@h/x")),
        str(connect("tap://me:hush@h/x")._address),
        repr(connect("tap://me:hush@h/x?settings.sasl.password=hush")._address),
    ]
    assert shown[0] == "connect('tap://***@h/x')"
    assert "hush" not in " ".join(shown)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://AKIA0123456789ABCDEF:ab/hush@bucket/orders", "a password|%2F for a slash"),
        ("tap://me:ab/hush@h/x", "%2F for a slash"),
        ("tap://me:hush?limit=5@h/x", "%3F for a question mark"),
        ("tap://me:ab?hush=5@h/x", "%3F for a question mark"),
        ("tap:/me:hush@h/x", r"file '\*\*\*@h/x' has no extension"),
        ("me:hush@h/x", r"file '\*\*\*@h/x' has no extension"),
        ("me:hush@h/x.nothing", r"connect\('\*\*\*@h/x.nothing'\): no connector"),
    ],
)
def test_secret_in_a_url_that_is_misspelt(url: str, words: str) -> None:
    with pytest.raises(GraphError, match=words) as refused:
        connect(url)
    assert "hush" not in f"{refused.value!r} {refused.value.__cause__!r}"


@pytest.mark.parametrize("url", ["tap://a:1,b:2/x@y", "tap://[::1]/x@y", "tap://h/x?plain=a@b", "tap://h:1?limit=5"])
def test_urls_without_a_password(url: str) -> None:
    assert connect(url)._address.user is None


def options(  # noqa: PLR0913 - one of each kind
    *,
    flag: bool = False,
    number: float = 0,
    wait: timedelta | None = None,
    start: Literal["earliest", "latest"] | datetime = "earliest",
    names: Sequence[str] = (),
    counts: tuple[int, ...] = (),
    decode: Callable[[bytes], Any] | None = None,
    password: Literal["a", "b"] | None = None,
    plain: str = "",
) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("flag", "TRUE", True),
        ("flag", "0", False),
        ("number", "1e3", 1000.0),
        ("wait", "1.5h", timedelta(minutes=90)),
        ("wait", "250ms", timedelta(milliseconds=250)),
        ("start", "latest", "latest"),
        ("start", "2026-05-01", datetime(2026, 5, 1, tzinfo=UTC)),
        ("names", "a,b", ["a", "b"]),
        ("counts", "1,2", (1, 2)),
        ("plain", "x", "x"),
    ],
)
def test_options_as_text(name: str, text: str, value: object) -> None:
    found = options_for(options, "it", {name: text}, {})
    assert found == {name: value}
    assert type(found[name]) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("flag", "maybe", "it needs true or false as option 'flag'; got 'maybe'"),
        ("wait", "5x", "it needs a time such as 500ms, 30s, 5m, 2h, 1d as option 'wait'; got '5x'"),
        ("start", "now", "it needs 'earliest' or 'latest' or a time in ISO format as option 'start'; got 'now'"),
        ("decode", "json", "it has an option 'decode' that no URL can contain; pass the argument decode=..."),
        ("wait", "99999999999d", "it needs a time such as 500ms"),
        ("password", "hush", "it needs 'a' or 'b' as option 'password'; got ***"),
        ("counts", "1,x", "option 'counts'"),
    ],
)
def test_texts_that_are_no_option(name: str, text: str, words: str) -> None:
    with pytest.raises(GraphError) as refused:
        options_for(options, "it", {name: text}, {})
    assert words in str(refused.value)


def test_family_of_schemes() -> None:
    connect("tank+tls+small://h").source()
    assert MADE[-1][0].scheme == "tank+tls+small"
    connect("tank+deep://h?table=t").sink()
    for url in ("tank://h", "tap+tls://h"):
        with pytest.raises(GraphError, match="no connector for scheme"):
            connect(url)


def test_packages_are_read_once_and_again_for_an_unknown_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    here, installed, read = f"{__name__}:", [], list[int]()

    def entry_points() -> importlib.metadata.EntryPoints:
        read.append(len(installed))
        return importlib.metadata.EntryPoints(installed)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    installed.append(importlib.metadata.EntryPoint("tap", f"{here}tapped", "malflow.sources"))
    for _ in range(3):
        connect("tap://a")
    assert read == [1]
    installed.append(importlib.metadata.EntryPoint("well", f"{here}tapped", "malflow.sources"))
    connect("well://a")
    assert read == [1, 2]
