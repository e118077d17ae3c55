"""Where a dataflow runs: each runtime hosts workers, and none implements an operator."""
