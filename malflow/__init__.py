"""malflow: write a dataflow once, run it on one thread or on Spark."""
