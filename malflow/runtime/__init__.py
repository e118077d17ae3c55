"""The runtimes, which host the workers of a dataflow; none of them implements an operator."""
