"""Batches of records, and rows, as columns."""
