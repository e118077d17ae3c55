"""The parts of `connectors.py`: a system each, whose client need be installed for its part only."""
