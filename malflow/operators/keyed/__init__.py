"""Operators with a state for each key, but for windows, joins and tables."""
