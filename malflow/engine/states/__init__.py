"""The states with which a run begins: loaded, migrated and redistributed."""
