"""The changelog of a run's state in a scratch folder, and the removal of what runs left there."""
