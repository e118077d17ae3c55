"""Actions by click: stop, rescale and save a run, and replay letters, if the page may."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from malflow.snapshot import FsspecBackend
from tests.kit.waiting import wait_until
from tests.serve.browser.jobs import Prices, orders
from tests.serve.browser.shown import shown
from tests.serve.browser.viewer import Viewer

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.usefixtures("place")]

View = Callable[..., Viewer]


def test_a_run_is_saved_rescaled_and_stopped_by_clicks(view: View, store: FsspecBackend) -> None:
    with shown(orders(Prices()), store, parallelism=2) as run:
        seen = view(run.url).ready()
        seen.click("Snapshot")
        wait_until(lambda: run.handle.progress.snapshot is not None)
        first = run.handle.progress.snapshot
        seen.sees(f"Snapshot {first} taken")
        seen.click("Rescale")
        seen.tab.get_by_label("Workers").fill("3")
        seen.tab.locator("dialog button.main").click()
        seen.sees("Now with 3 workers")
        assert run.handle.progress.parallelism == 3
        seen.sees("Rescaled from 2 to 3 workers")
        seen.click("Stop")
        seen.click("Cancel")
        assert run.handle.progress.status != "stopping"
        seen.click("Stop")
        seen.tab.locator("dialog button.main").click()
        seen.tab.locator("[data-status=ended]").wait_for()
        wait_until(lambda: run.handle.has_ended)
        assert run.handle.progress.snapshot > first
        seen.sees("The run has ended at")
        assert seen.tab.locator("header button:not(:disabled)").count() == 0


def test_letters_are_replayed_one_by_one_and_all_together(view: View, store: FsspecBackend) -> None:
    prices = Prices()
    with shown(orders(prices), store) as run:
        wait_until(lambda: run.handle.progress.counts.get("price", {}).get("kept") == 6)
        seen = view(run.url).ready()
        seen.tab.locator("#tab-letters").click()
        seen.tab.locator(".letters li").nth(5).wait_for()
        assert "no price for order 13" in seen.tab.locator(".letters").inner_text()
        prices.missing.clear()
        seen.tab.locator(".letters li button").first.click()
        seen.sees("1 letter of price replayed")
        wait_until(lambda: seen.tab.locator(".letters li").count() == 5)
        seen.click("Replay all of price")
        seen.sees("5 letters of price replayed")
        seen.sees("No letters. Records that fail")
        assert run.handle.progress.counts["price"]["kept"] == 0


def test_a_key_is_looked_up(view: View) -> None:
    with shown(orders(Prices())) as run:
        seen = view(run.url).ready()
        seen.show("totals")
        seen.tab.get_by_label("Key", exact=True).fill("shop 3")
        seen.click("Look up")
        seen.tab.locator(".answer code").first.wait_for()
        assert "'shop 3'" in seen.tab.locator(".answer code").first.inner_text()
        seen.tab.get_by_label("Key", exact=True).fill("shop 99")
        seen.click("Look up")
        seen.sees("No state has this key")
        seen.show("sales")
        assert seen.tab.get_by_label("Key", exact=True).count() == 0
        seen.click("Why does nothing come out?")
        seen.tab.locator(".answer pre", has_text="records").wait_for()


def test_the_last_records_are_shown_where_that_is_allowed(view: View) -> None:
    with shown(orders(Prices()), samples=True) as run:
        seen = view(run.url).ready()
        seen.show("price")
        seen.tab.locator(".panel h3 input").check()
        seen.tab.locator(".sample p code").nth(3).wait_for()
        key, value = seen.tab.locator(".sample p").first.locator("code").all_inner_texts()
        assert key in {"'a.csv'", "'b.csv'", "'c.csv'"}
        assert int(value) < 90
        seen.show("shop")
        seen.tab.locator(".sample").wait_for(state="detached")
    with shown(orders(Prices())) as run:
        seen = view(run.url).ready()
        seen.show("price")
        assert seen.tab.locator(".panel h3 input").count() == 0


def test_without_control_a_page_steers_nothing(view: View) -> None:
    with shown(orders(Prices()), control=False) as run:
        wait_until(lambda: run.handle.progress.counts.get("price", {}).get("kept"))
        seen = view(run.url).ready()
        assert seen.tab.locator("header button").count() == 0
        assert "Read only" in seen.text
        seen.tab.locator("#tab-letters").click()
        seen.tab.locator(".letters li").first.wait_for()
        assert seen.tab.locator(".letters button").count() == 0
        for path, content in (
            ("stop", {}),
            ("snapshot", {}),
            ("rescale", {"parallelism": 3}),
            ("replay", {"operator": "price"}),
        ):
            assert seen.posted(f"api/{path}", content) == 403
        assert run.handle.progress.status == "running"
        assert len(seen.faults) == 4
        seen.faults.clear()  # the browser's own messages about the four refusals
