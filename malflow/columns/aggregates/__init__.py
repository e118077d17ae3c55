"""Aggregates over columns: the accumulators of many keys as arrays, beside the states of operators."""
