"""Timestamps and epochs (watermarks): the operators that make them, and how others follow them."""
