"""The progress of a run, its listeners, and the explanation of its event time."""
