"""The runtime that hosts workers in processes of one machine, which exchange records through sockets."""
