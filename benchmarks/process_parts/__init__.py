"""The parts of `processes.py`: the input, and the jobs of each peer, whose process loads only what it needs."""
