"""SQL over streams: a text becomes operators of the same dataflow."""
