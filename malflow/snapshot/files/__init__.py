"""The files with the data of snapshots."""
