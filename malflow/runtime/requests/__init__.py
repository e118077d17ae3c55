"""The requests of other threads to a run, and their answers."""
