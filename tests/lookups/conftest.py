"""Fixtures of the tests of look-ups."""

from tests.connectors.postgres.conftest import database

__all__ = ["database"]
