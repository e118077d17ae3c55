"""The parts of `state.py`: questions to running jobs."""
