"""From one system to another, exactly once: jobs killed at any moment, even while a second run of them starts."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from random import Random

import pytest

from tests.connectors.pairs import Pair
from tests.kit.killing import SECONDS
from tests.kit.nights import only_nightly

PAIRS = [(source, sink) for source in ("kafka", "changes") for sink in ("kafka", "postgres", "parquet", "delta")]
ENDS = (0, -signal.SIGKILL)


@pytest.mark.fault("A7")
@only_nightly
@pytest.mark.parametrize("pair", PAIRS, ids="_to_".join, indirect=True)
def test_kills_at_any_moment(pair: Pair) -> None:
    random = Random(time.time_ns())  # noqa: S311 - no secret
    moments = [(random.randint(1, 4), random.uniform(0.7, 3.5), random.random() < 0.3) for _ in range(12)]
    print(moments)
    for workers, seconds, twice in moments:
        pair.add(100)
        with ExitStack() as stack:
            children = [stack.enter_context(pair.started(workers))]
            stack.callback(children[0].kill)
            if twice:
                time.sleep(seconds / 2)
                children.append(stack.enter_context(pair.started(1 + workers % 3)))
                stack.callback(children[1].kill)
            time.sleep(seconds)
            children[-1].kill()
            for child in children:
                _, errors = child.communicate(timeout=SECONDS)
                assert child.returncode in ENDS or "Fenced" in errors, errors
        pair.check()
    pair.add()
    pair.run()
    pair.check(whole=True)
