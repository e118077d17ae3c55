"""The parts of `operate.py`."""
