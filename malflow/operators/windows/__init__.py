"""The operators of windows."""
