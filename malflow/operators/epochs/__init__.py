"""Timestamps and epochs (watermarks): the operators that set them, and helpers of those that follow them."""
