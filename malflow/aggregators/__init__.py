"""Aggregators, and the loops generated from them; `malflow.agg` is their public interface."""
