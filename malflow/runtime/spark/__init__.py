"""The runtime that hosts workers in Spark Structured Streaming; nothing else imports pyspark."""
