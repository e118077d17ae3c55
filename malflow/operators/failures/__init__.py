"""Operators whose user function may fail: the guard that decides, and the dead letters."""
