"""Objects on their way between processes: programs, records and errors, as pickles."""
