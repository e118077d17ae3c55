"""Storage: the five operations that snapshots need, on local disk, S3 or any other fsspec file system."""
