"""The stores of malflow keep the laws that those of users are to keep."""

from __future__ import annotations

import pytest

from malflow.testing import assert_store
from tests.store.conftest import Place

pytestmark = pytest.mark.slow


def test_each_store_keeps_the_laws(place: Place, request: pytest.FixtureRequest) -> None:
    kind = request.node.callspec.params["place"]
    assert_store(
        place.open,
        pages=60 if kind == "gateway" else 1_010,  # its requests take long, and `s3` has the same pages
        without=["pickled"] if kind == "memory" else (),  # a memory is of one process
    )
