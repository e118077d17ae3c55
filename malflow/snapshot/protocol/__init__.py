"""The protocol by which runs claim a job and commit its snapshots."""
