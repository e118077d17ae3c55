"""The operators that host a user's sources and sinks."""
