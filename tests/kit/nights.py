"""Cases that only ``HYPOTHESIS_PROFILE=nightly`` tries."""

from __future__ import annotations

import os

import pytest

__all__ = ["NIGHTLY", "only_nightly"]

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
"""Whether everything is tried; otherwise what fits into half an hour."""

only_nightly = pytest.mark.skipif(not NIGHTLY, reason="takes minutes; HYPOTHESIS_PROFILE=nightly runs it")
"""Marks tests that are skipped otherwise."""
