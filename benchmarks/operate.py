"""Measure what operating a dataflow costs.

python benchmarks/operate.py [--only monitor,page,policies,calls,plan,idle_tick,browser] [--rounds 15]
                             [--records 1000000] [--before FOLDER]

`--before` is a checkout of another version, which is measured in turn with this one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from operate_parts.calling_out import print_calls
from operate_parts.monitor import print_monitor
from operate_parts.page import print_page, print_scrape
from operate_parts.plan import print_plan
from operate_parts.policies import print_policies

_SECTIONS = ("monitor", "page", "policies", "calls", "plan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="how often each job runs in each mode")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many records or keys each job gets")
    parser.add_argument("--only", default=",".join(_SECTIONS), help="sections; others: idle_tick, browser")
    parser.add_argument("--before", type=Path, help="the folder of another version")
    options = parser.parse_args()
    sections = options.only.split(",")
    if "monitor" in sections:
        print_monitor(options.rounds, options.records, options.before)
    if "page" in sections:
        print_page(options.rounds, options.records)
        print_scrape()
    if "policies" in sections:
        print_policies(options.rounds, options.records, options.before)
    if "calls" in sections:
        print_calls(options.rounds, options.records)
    if "plan" in sections:
        print_plan(options.rounds, options.records)
    if "idle_tick" in sections:
        from operate_parts.idle_tick import print_idle_tick  # noqa: PLC0415 - it needs Spark

        print_idle_tick(options.rounds, options.before)
    if "browser" in sections:
        from operate_parts.browser import print_browser  # noqa: PLC0415 - it needs Chromium

        print_browser(options.rounds)


if __name__ == "__main__":
    main()
