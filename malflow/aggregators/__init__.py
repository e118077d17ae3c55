"""Aggregators, and the loops that are generated from them; `malflow.agg` is their public face."""
