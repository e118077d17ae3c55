"""Look-ups: rows of tables outside of a dataflow, asked by key."""

from malflow.lookups.contract import LookupTable

__all__ = ["LookupTable"]
