"""Tables of Postgres by their URL."""

from __future__ import annotations

from typing import Any

import pytest

from malflow.connectors.address import Address
from malflow.connectors.option_texts import options_for
from malflow.connectors.postgres import by_name
from malflow.errors import GraphError


def made(make: Any, url: str) -> Any:
    address = Address.parse(url)
    return make(address, **options_for(make, "connect", address.query, {}))


@pytest.mark.parametrize(
    ("make", "url", "shown"),
    [
        (by_name.source, "postgres://u:hush@h:7/shop/s.orders?key=a,b&poll_every=5s", "PostgresSource({}, 's.orders')"),
        (by_name.source, "postgres://u:hush@h:7/shop?query=select+1+as+a&key=a", "PostgresSource({}, 'query')"),
        (by_name.changes, "postgres+changes://u:hush@h:7/shop/a,b?slot=s", "PostgresChanges({}, ('a', 'b'), slot='s')"),
        (by_name.sink, "postgres://u:hush@h:7/shop/totals?delivery=at-least-once&key=a", "PostgresSink({}, 'totals')"),
        (by_name.sink, "postgres://u:hu@sh:%2F%@h:7/shop/totals", "PostgresSink({}, 'totals')"),
    ],
)
def test_sources_and_sinks(make: Any, url: str, shown: str) -> None:
    assert repr(made(make, url)) == shown.format("host=h port=7 dbname=shop")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgres://u:hu/sh@h:7/shop/totals", "write %2F for a slash"),
        ("postgres://u:hush@h:7/shop", "name of a table"),
    ],
)
def test_urls_that_make_no_sense(url: str, words: str) -> None:
    with pytest.raises(GraphError, match=words) as caught:
        made(by_name.sink, url)
    assert "sh@" not in str(caught.value)


def test_unknown_option_has_a_near_match() -> None:
    with pytest.raises(GraphError, match="page_rows"):
        made(by_name.source, "postgres://h/shop/orders?page_row=5")
