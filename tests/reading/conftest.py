"""Scripted runs, which have no reason to pause."""

from tests.kit.no_pauses import no_pauses

__all__ = ["no_pauses"]
