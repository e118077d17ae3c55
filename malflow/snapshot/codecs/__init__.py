"""Codecs, which serialise states, and the shapes of the classes in them."""
