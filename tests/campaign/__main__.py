"""Long attacks on the runtimes: ``python -m tests.campaign PART [--minutes M] [--seed S] [--cases N]``.

Each case prints its seed; ``--seed S --cases 1`` runs it again. Exit code 1 means a difference.
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.campaign.cases import Campaign
from tests.campaign.differential import differential, here
from tests.campaign.kills import cluster, workers
from tests.campaign.many import many
from tests.campaign.restores import restores
from tests.campaign.scripts import scripts
from tests.campaign.settings import settings
from tests.campaign.size import size
from tests.campaign.soak import soak
from tests.campaign.targets import targets

PARTS = {
    part.__name__: part
    for part in (differential, here, workers, cluster, restores, scripts, settings, size, many, soak, targets)
}


def main() -> int:
    """Run a part of the campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("part", choices=PARTS, help="what to run")
    parser.add_argument("--minutes", type=float, default=10, help="how long cases are begun (default: 10)")
    parser.add_argument("--seed", type=int, help="the seed of the first case (default: a random one)")
    parser.add_argument("--cases", type=int, help="how many cases there are at most")
    parser.add_argument("--size", type=int, help="how large a case is, where it has a size")
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if chosen.seed is None else chosen.seed
    campaign = Campaign(chosen.part, seed, 60 * chosen.minutes, chosen.cases, chosen.size)
    PARTS[chosen.part](campaign)
    print(campaign.summary(), flush=True)
    return 1 if campaign.failed else 0


if __name__ == "__main__":
    sys.exit(main())
