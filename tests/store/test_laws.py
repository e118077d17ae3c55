"""The stores of malflow keep the laws that those of users are to keep."""

from __future__ import annotations

import pytest

from malflow.testing import assert_store
from tests.store.conftest import Place

pytestmark = pytest.mark.slow


def test_each_store_keeps_the_laws(
    place: Place, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = request.node.callspec.params["place"]
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "25")  # pages of S3, without a thousand requests
    assert_store(
        place.open,
        pages=30 if kind in ("s3", "gateway") else 1_010,
        without=["pickled"] if kind == "memory" else (),  # a memory is of one process
    )
