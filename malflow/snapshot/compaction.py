"""Choosing the small increments to merge, so that a snapshot has few files: size-tiered compaction.

After the log-structured merge-tree of O'Neil et al., 1996. Each snapshot adds a small file of changes, and a restore
reads them all. Files belong to tiers by size, and each tier is eight times the one below. When a new file would be the
eighth in its tier at the end of the chain, counting lower tiers too, all eight are merged into one; this may in turn
fill the next tier. Only files at the end are merged, since later changes replace earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from malflow.snapshot.manifest import FileEntry

__all__ = ["increments_to_merge"]

_TIER = 8
"""The growth of tiers. Half: fewer files to restore, more rewriting; double: more files, less rewriting."""

_SMALLEST_TIER = 4096
"""Bytes of the lowest tier: smaller files cost as much as it does. The value only shifts the tiers."""

_LARGEST_COMPACTED = 8 << 20
"""Bytes from which an increment is not rewritten. Less: more files; more: longer snapshots."""


def increments_to_merge(files: Sequence[FileEntry], size: int) -> Sequence[FileEntry]:
    """Return the files at the end of a snapshot to be merged into the next one.

    Each tier holds files `_TIER` times as large as the tier below, and retains fewer than `_TIER` of them. So a byte is
    rewritten at most once per tier.

    Args:
        files: the files of the latest snapshot.
        size: the size of the next file, in bytes.
    """
    chain = files
    while True:
        run = _last_of_tier(chain, _tier(size))
        if len(run) < _TIER - 1:
            break
        chain = chain[: -len(run)]
        size += sum(entry.bytes for entry in run)
    return files[len(chain) :]


def _last_of_tier(chain: Sequence[FileEntry], tier: int) -> list[FileEntry]:
    """Return the increments at the end of the chain with this tier at most."""
    return list(
        takewhile(
            lambda entry: not entry.base and entry.bytes < _LARGEST_COMPACTED and _tier(entry.bytes) <= tier,
            reversed(chain),
        )
    )


def _tier(size: int) -> int:
    tier = 0
    while size > _SMALLEST_TIER:
        size //= _TIER
        tier += 1
    return tier
