"""The page of a run in a real browser: what it shows and to whom, without any fault in the console."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime
from malflow.monitor import Monitor
from malflow.runtime.why.answer import FAULTS
from malflow.serve import Page
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from tests.kit.nights import NIGHTLY, at_night
from tests.kit.waiting import wait_until
from tests.serve.browser.jobs import (
    HOSTILE,
    NAMES,
    Forget,
    Prices,
    chain,
    failing,
    hostile,
    large,
    orders,
    stalled,
)
from tests.serve.browser.shown import shown
from tests.serve.browser.viewer import Viewer

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.usefixtures("place")]

View = Callable[..., Viewer]

SECOND = timedelta(seconds=1)

CONTRASTS = (Path(__file__).parent / "contrasts.js").read_text(encoding="utf-8")
"""Returns the contrast of each visible text, with its beginning."""


def test_a_run_is_shown_and_nothing_goes_wrong(view: View, store: FsspecBackend) -> None:
    with shown(orders(Prices()), store, SECOND, parallelism=2) as run:
        seen = view(run.url).ready()
        seen.tab.locator("text.figure", has_text="/s").first.wait_for()
        seen.updated(3)
        assert seen.tab.title() == "orders \N{EN DASH} malflow"
        assert "#" not in seen.tab.url
        for words in (
            "single thread \N{MULTIPLICATION SIGN} 2",
            "running",
            "read in all",
            "price",
            "waiting",
            "Snapshot",
        ):
            assert words in seen.text
        for operator in run.handle.progress.operators:
            seen.show(operator)
            seen.tab.locator(f'.panel h2:text-is("{operator}")').wait_for()
            assert not {"NaN", "undefined", "null", "Infinity", "[object"} & set(seen.text.replace("/", " ").split())
        assert sum(seen.run("window.shifts")) < 0.02


def test_a_source_has_its_parts_by_worker(view: View) -> None:
    with shown(orders(Prices()), parallelism=2) as run:
        seen = view(run.url).ready()
        seen.show("orders")
        parts = seen.tab.locator(".sample.parts p")
        parts.nth(2).wait_for()
        rows = [it.split() for it in parts.all_inner_texts()]
        held = {part: it.worker for part, it in run.handle.progress.parts["orders"].items()}
        assert {row[2].strip("'"): int(row[1]) for row in rows} == held
        seen.tab.locator(".workload", has_text="worker 0, 2").wait_for()


def test_a_stalled_part_is_told_and_the_cause_is_marked(view: View) -> None:
    with shown(stalled) as run:
        seen = view(run.url).ready()
        seen.tab.locator(".alert.bad").wait_for()
        alert = seen.tab.locator(".alert [role=status]")
        assert alert.inner_text().startswith("No output: part c.csv of “lines” is silent")
        assert alert.get_attribute("aria-live") == "polite"
        why = run.handle.why()
        assert why.is_fault
        assert seen.tab.locator("g.node.cause text.name").all_text_contents() == [why.stops_at]
        assert seen.tab.locator("tr.cause th").all_inner_texts() == [why.stops_at]
        assert seen.tab.locator("g.node.waiting text.name").all_text_contents() == ["count", "row", "counts"]
        assert seen.tab.locator(".status").inner_text() == "running, no output"
        bad = seen.tab.locator(".tile.bad").all_inner_texts()
        assert [it.split("\n")[:2] for it in bad] == [["records out", "0/s"], ["laggard", "part c.csv"]]
        assert "silent for" in bad[1]
        assert seen.tab.locator(".timeline rect.again").count() == 1
        height = seen.run("document.querySelector('.alert').offsetHeight")
        seen.updated(2)
        assert seen.run("document.querySelector('.alert').offsetHeight") == height
        seen.tab.locator(".alert button[aria-expanded]").click()
        seen.tab.locator(".alert.open", has_text="idle_after=").wait_for()


def test_every_fault_has_a_headline(view: View) -> None:
    with shown(stalled) as run:
        seen = view(run.url).ready()
        heads = seen.run(
            """(causes) => import("/static/stories.js").then(({ headlineOf }) => {
              const facts = {source: "b", part: "'c'", join: "d", input: 2, operator: "e"};
              return causes.map((cause) => headlineOf({cause, stops_at: "a", facts}, 0).text);
            })""",
            sorted(FAULTS),
        )
        assert len({*heads}) == len(FAULTS)
        assert all(it.startswith("No output: ") and "undefined" not in it and "not known" not in it for it in heads)


def test_figures_agree_and_snapshots_are_one_line(view: View, store: FsspecBackend) -> None:
    with shown(orders(Prices()), store, SECOND / 8) as run:
        wait_until(lambda: (run.handle.progress.snapshot or 0) > 3)
        seen = view(run.url).ready()
        seen.show("price")
        seen.updated(3)
        facts, keys = seen.run(
            """[".panel .fact dd", ".panel .key b"].map((it) =>
              [...document.querySelectorAll(it)].map((found) => found.textContent.trim()))"""
        )
        assert len(keys) >= 2
        for key in keys:
            assert any(it.startswith(key) for it in facts)
        rows = seen.tab.locator(".events li").all_inner_texts()
        are_snapshots = ["Snapshot" in it for it in rows]
        assert any("earlier ones" in it for it in rows)
        assert not any(one and other for one, other in pairwise(are_snapshots))


def test_letters_of_an_operator_are_one_line(view: View, store: FsspecBackend) -> None:
    with shown(failing, store, SECOND / 8) as run:
        wait_until(lambda: (run.handle.progress.snapshot or 0) > 4)
        seen = view(run.url).ready()
        seen.updated(2)
        rows = [it for it in seen.tab.locator(".events li").all_inner_texts() if "dead letter" in it]
        assert len(rows) == 1
        assert "records of parse became dead letters since" in rows[0]


def test_fit_shows_a_long_chain_whole(view: View) -> None:
    with shown(chain(12)) as run:
        seen = view(run.url).ready()
        widths = "(() => { const it = document.querySelector('.frame'); return [it.scrollWidth, it.clientWidth]; })()"
        wide, room = seen.run(widths)
        assert wide > room
        seen.click("Fit")
        seen.updated()
        wide, room = seen.run(widths)
        assert wide <= room
        assert seen.tab.get_by_role("button", name="Fit", exact=True).get_attribute("aria-pressed") == "true"


def test_hostile_names_and_values_are_text(view: View) -> None:
    with shown(hostile) as run:
        wait_until(lambda: run.handle.progress.counts.get("fail", {}).get("kept") == len(HOSTILE))
        seen = view(run.url).ready()
        seen.tab.locator("#tab-letters").click()
        seen.tab.locator(".letters li").nth(len(HOSTILE) - 1).wait_for()
        seen.sees(HOSTILE[0])
        for at in range(len(NAMES)):
            seen.tab.locator("tbody button").nth(1 + at).click()
            shown_name = seen.tab.locator(".panel h2").inner_text()
            assert len(shown_name) <= 100
            seen.click("All operators")
        text = seen.text
        assert not {"\u202e", "\u202c", "\u200b", "\x1b"} & set(text)
        assert "\\u202e" in text
        assert seen.run("document.querySelectorAll('#page img, #page script, #page b b').length") == 0
        assert "hacked" not in seen.tab.title()
        assert seen.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("width", "scheme"), at_night(product([1280, 390], ["light", "dark"]), but=[(1280, "light"), (390, "dark")])
)
def test_a_page_fits_its_window_and_can_be_read(view: View, store: FsspecBackend, width: int, scheme: Any) -> None:
    with shown(orders(Prices()), store, SECOND, parallelism=2) as run:
        seen = view(run.url, width=width, scheme=scheme).ready()
        seen.sees("Records reach the sinks")
        for step in ("table", "panel"):
            if step == "panel":
                seen.tab.locator("tbody button", has_text="price").click()
                seen.tab.locator(".held li").first.wait_for()
            assert seen.run("document.documentElement.scrollWidth") == width
            assert [it for it in seen.run(CONTRASTS) if it[0] < 4.5] == []


def test_everything_is_reached_by_keys(view: View) -> None:
    with shown(stalled) as run:
        seen = view(run.url).ready()
        reached = []
        for _ in range(60):
            seen.tab.keyboard.press("Tab")
            reached.append(
                seen.run(
                    "(() => { const it = document.activeElement, style = getComputedStyle(it);"
                    " const border = it.querySelector?.('rect.border');"
                    " return [it.getAttribute('aria-label') || it.innerText || it.type,"
                    " parseFloat(style.outlineWidth) > 0 && style.outlineStyle != 'none'"
                    " || (border && parseFloat(getComputedStyle(border).strokeWidth) >= 3)"
                    " || it.type == 'radio']; })()"
                )
            )
        names = " ".join(name or "" for name, _ in reached)
        for name in ("Snapshot", "Stop", "lines", "Fit", "Events", "search"):
            assert name in names
        assert [name for name, is_seen in reached[:20] if not is_seen] == []
        seen.tab.locator("g.node[tabindex='0']").focus()
        for _ in range(3):
            seen.tab.keyboard.press("ArrowRight")
        seen.tab.keyboard.press("Enter")
        assert seen.tab.locator(".panel h2").inner_text() == "word"


def test_a_large_dataflow_is_drawn_with_chains_and_can_be_searched(view: View) -> None:
    with shown(large) as run:
        seen = view(run.url).ready()
        assert seen.tab.locator("g.node").count() == 40
        seen.tab.get_by_text("All 200 operators").click()
        seen.updated()
        assert seen.tab.locator("g.node").count() == 200
        seen.tab.locator("input[type=search]").fill("after 3.")
        assert seen.tab.locator("g.node:not(.dim)").count() == 8
        assert seen.tab.locator("tbody tr").count() == 8
        seen.tab.get_by_text("All 200 operators").click()
        seen.tab.locator("g.node:not(.dim)").first.click()
        assert seen.tab.locator(".chain button").count() == 9
        seen.tab.locator("input[type=search]").fill("no such")
        seen.sees("No operator has “no such” in its name.")


@pytest.mark.nightly
def test_memory_does_not_grow(view: View) -> None:
    with shown(stalled) as run:
        seen = view(run.url).ready()
        seen.show("count")
        session = seen.tab.context.new_cdp_session(seen.tab)

        def used() -> int:
            session.send("HeapProfiler.collectGarbage")
            return int(session.send("Runtime.getHeapUsage")["usedSize"])

        seen.updated(3)
        nodes, before = seen.run("document.querySelectorAll('*').length"), used()
        seen.updated(60 if NIGHTLY else 8)
        assert used() - before < 600_000
        assert abs(seen.run("document.querySelectorAll('*').length") - nodes) < 200


def test_a_killed_run_is_said_to_be_out_of_reach(view: View, tmp_path: Path) -> None:
    program = (
        "from tests.serve.browser.jobs import stalled\n"
        "from malflow import SingleThreadRuntime\n"
        "from malflow.monitor import Monitor\n"
        "from malflow.serve import Page\n"
        "page = Page('127.0.0.1:0')\n"
        "page.open()\n"
        "print(page.url, flush=True)\n"
        "SingleThreadRuntime(stalled, listeners=[Monitor(page)]).execute()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            seen = view(process.stdout.readline().strip()).ready()
        finally:
            process.send_signal(signal.SIGKILL)
        seen.ready("lost")
        seen.sees("Lost contact with the run, last seen")
        alert = seen.tab.locator(".alert .head")
        alert.get_by_text(re.compile(r": all figures are \d+\W?s old")).wait_for()
        before = alert.inner_text()
        seen.updated(2)
        assert alert.inner_text() != before, "the age grows while nobody answers"
        assert seen.run("getComputedStyle(document.querySelector('.tiles')).filter") == "grayscale(1)"
        assert seen.tab.locator(".status").get_attribute("data-status") == "lost contact"
        seen.faults[:] = [it for it in seen.faults if "ERR_CONNECTION_REFUSED" not in it and "ERR_EMPTY" not in it]
        seen.faults[:] = [it for it in seen.faults if "ERR_CONNECTION_RESET" not in it]


def test_a_failed_run_says_why(view: View) -> None:
    def build(provider: Any) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([3, 0]))
        numbers.map("divide", lambda it: 6 // it).sink("out", Forget())

    with pytest.raises(Exception, match="divide"), shown(build) as run:  # noqa: PT012 - the run is waited for at the end
        seen = view(run.url).ready()
        seen.sees("The run failed")
        assert "ZeroDivisionError" in seen.tab.locator(".alert").inner_text()
        assert "divide" in seen.tab.locator(".alert").inner_text()


def test_a_page_without_the_token_asks_for_it(view: View) -> None:
    with shown(stalled) as run:
        address, _, token = run.url.partition("#")
        seen = view(f"{address}#wrong").ready("locked")
        assert "lines" not in seen.text
        field = seen.tab.get_by_label("Token")
        field.fill("wrong again")
        seen.click("Open")
        seen.sees("That token is not the one of this run.")
        field.fill(token)
        seen.click("Open")
        seen.ready()
        assert token not in seen.tab.content()
        assert seen.run("document.cookie") == ""
        assert len([it for it in seen.faults if "401" in it]) == len(seen.faults)
        seen.faults.clear()


def test_a_page_waits_for_the_first_run_and_shows_the_next(view: View) -> None:
    page = Page("127.0.0.1:0", control=True)
    page.open()
    seen = view(page.url or "").ready("waiting")
    seen.sees("No run has begun yet")
    try:
        for build, operator in ((stalled, "split"), (orders(Prices()), "price")):
            handle = SingleThreadRuntime(build, listeners=[Monitor(page)]).start()
            seen.box(operator).wait_for()
            handle.stop()
            handle.await_termination(60)
    finally:
        seen.close()
        page.close()
    assert all("503" in it for it in seen.faults)
    seen.faults.clear()


def test_a_hidden_tab_asks_less_often(view: View) -> None:
    with shown(stalled) as run:
        seen = view(run.url).ready()
        seen.run("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        seen.updated(1)
        asked = len([it for it in seen.requests if "api/progress" in it])
        seen.tab.wait_for_timeout(900)  # in which a page that is seen asks three times
        assert len([it for it in seen.requests if "api/progress" in it]) - asked <= 1


def test_numbers_are_words_where_they_are_unknown(view: View) -> None:
    with shown(stalled) as run:
        seen = view(run.url).ready()
        texts = seen.run(
            """() => import("/static/format.js").then((it) => {
              const forms = [it.count, it.short, it.rate, it.percent, it.bytes, it.span, it.age, it.running, it.clock,
                it.exact];
              const values = [NaN, undefined, null, Infinity, -1, 0, 0.004, 7, 999.6, 1e3, 183204, 1e15, 1e30];
              return values.map((value) => [String(value), ...forms.map((form) => form(value))]);
            })"""
        )
        assert all(not {"NaN", "undefined", "null", "Infinity"} & set(" ".join(row[1:]).split()) for row in texts)
        by_value = {row[0]: row for row in texts}
        assert {*by_value["NaN"][1:]} == {"not known"}
        assert [it.replace("\u00a0", " ") for it in by_value["183204"][1:4]] == ["183,204", "183 k", "183 k/s"]
        assert by_value["999.6"][2].replace("\u00a0", " ") == "1.0 k"
        sizes = [len(row[2]) for row in texts[5:12]]
        assert max(sizes) <= 6
        assert all(abs(one - other) <= 4 for one, other in pairwise(sizes))
