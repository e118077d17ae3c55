"""Operators that call outside of the dataflow, and the attempts of their calls."""
