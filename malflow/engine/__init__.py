"""The engine: a graph becomes a plan, a plan becomes workers, and workers run it tick by tick."""
