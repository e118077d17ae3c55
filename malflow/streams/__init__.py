"""The streams of the fluent API: what a user writes a dataflow with."""
