"""Scripts of random dataflows are killed at any point, while their files rotate and their database refuses rows."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from malflow import NoKey
from tests.campaign.cases import Campaign
from tests.campaign.scripts import Logs, scripts
from tests.kit.nights import only_nightly
from tests.properties.specs import Part, Step

pytestmark = pytest.mark.nightly


@pytest.mark.fault("A7", "N18")
@only_nightly
def test_each_record_of_a_killed_script_is_a_row_or_a_letter() -> None:
    campaign = Campaign("scripts", random.SystemRandom().randrange(1 << 31), 600, most=8)

    scripts(campaign)

    assert campaign.failed == {}


@pytest.mark.parametrize("number", [1, 3])
def test_rotated_files_have_each_line_once(tmp_path: Path, number: int) -> None:
    parts = tuple(Part(NoKey, tuple(range(9)), tuple(range(9))) for _ in range(number))
    for seed in range(5):
        folder = tmp_path / str(seed)
        logs = Logs(folder, Step("source", "in", (), parts), random.Random(seed))
        for is_read in (True, False, False):
            logs.write(0.5)
            logs.rotate(is_read=is_read)
        logs.write(1)

        texts = [
            gzip.decompress(it.read_bytes()).decode() if it.suffix == ".gz" else it.read_text()
            for it in folder.iterdir()
        ]

        assert len(texts) >= number
        assert sorted("".join(texts).splitlines()) == sorted(
            f"('{at}-{it}', {it}, {it})" for at in range(number) for it in range(9)
        )
