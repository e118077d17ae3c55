"""The Spark session of a run, and its Java."""
