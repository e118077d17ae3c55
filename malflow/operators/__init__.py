"""What each operator does to a batch, one subject a module; what they have in common is in `contract`."""
