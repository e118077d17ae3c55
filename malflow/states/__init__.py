"""The states of operators: by key and by pane, their changes, and their kinds."""
