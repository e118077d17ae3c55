"""The tree of a text: nodes as they are written, each with its place."""
