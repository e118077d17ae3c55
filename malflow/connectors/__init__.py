"""Sources and sinks for other systems, a folder for each."""
