"""What operators remember: states by key and by pane, their changes, and their kinds."""
