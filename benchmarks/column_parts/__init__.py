"""Programs of the benchmark of columns, in malflow and its peers."""
