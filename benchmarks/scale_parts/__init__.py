"""The parts of `scale.py`: the driver's work in a tick of a run whose tasks are made up, and the routes of keys."""
