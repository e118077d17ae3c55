"""A web server in a thread of its own, shared by sources and the page of a run: its addresses, limits and log."""
