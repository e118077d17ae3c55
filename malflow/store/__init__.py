"""Storage: the five operations that snapshots need, on local disk, S3, or any other fsspec file system.

A `Store` of your own is passed to ``FsspecBackend(store=...)``, and `malflow.testing.assert_store` checks it.
"""

from malflow.store.contract import (
    KeyExists,
    KeyMissing,
    Store,
    Transient,
    UnknownOutcome,
    is_key,
    require_folder,
    require_key,
)

__all__ = [
    "KeyExists",
    "KeyMissing",
    "Store",
    "Transient",
    "UnknownOutcome",
    "is_key",
    "require_folder",
    "require_key",
]
