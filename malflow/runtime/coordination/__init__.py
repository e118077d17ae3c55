"""The work between two ticks: snapshots, commits of sinks, budgets and answers."""
