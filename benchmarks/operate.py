"""Measure what operating a dataflow costs.

python benchmarks/operate.py [--rounds 15] [--records 1000000] [--only monitor]
"""

from __future__ import annotations

import argparse

from operate_parts.monitor import print_monitor

_SECTIONS = {"monitor": print_monitor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="how often each job runs in each mode")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many records each job gets")
    parser.add_argument("--only", default=",".join(_SECTIONS), help="sections")
    options = parser.parse_args()
    for name in options.only.split(","):
        _SECTIONS[name](options.rounds, options.records)


if __name__ == "__main__":
    main()
