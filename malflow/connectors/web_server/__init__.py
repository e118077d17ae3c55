"""A web server in a thread of its own, which sources and the page of a run share: its addresses, limits and log."""
