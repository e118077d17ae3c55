"""The parts of sources in a run: found, dealt to workers, and confirmed once a snapshot is durable."""
