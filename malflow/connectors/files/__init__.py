"""Files as sources and sinks: lines, CSV, JSON lines and text."""
