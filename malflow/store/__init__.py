"""Storage: the five operations that snapshots need, on a local disk, S3, or any store of fsspec."""
