"""The operators that join streams by key."""
