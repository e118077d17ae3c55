"""The operators that host a user's sources and sinks, and what these operators share."""
