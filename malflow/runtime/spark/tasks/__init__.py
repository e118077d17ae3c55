"""What runs on executors: the tasks of a tick."""
