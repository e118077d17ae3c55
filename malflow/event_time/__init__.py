"""Panes of event time, deadlines of keys, and the time of ticks."""
